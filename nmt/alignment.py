import numpy as np
from typing import NamedTuple
class AlignmentScore(NamedTuple):
    aer: float; precision: float; recall: float
def parse_pharaoh(line): return {tuple(map(int,p.split("-"))) for p in line.split()}
def format_pharaoh(links): return " ".join(f"{i}-{j}" for i,j in sorted(links))
def aer(h,s,p):
    A=sum(map(len,h));S=sum(map(len,s));a=sum(len(x&y) for x,y in zip(h,p));b=sum(len(x&y) for x,y in zip(h,s))
    return AlignmentScore(1-(a+b)/max(1,A+S),a/max(1,A),b/max(1,S))
def words_from_pieces(w,t,s):
    w=np.asarray(w);out=np.zeros((max(t,default=-1)+1,max(s,default=-1)+1));n=np.zeros(len(out))
    for r,i in enumerate(t):
        if i<0: continue
        row=np.zeros(out.shape[1])
        for c,j in enumerate(s):
            if j>=0: row[j]+=w[r,c]
        out[i]+=row/max(row.sum(),1e-9);n[i]+=1
    return out/np.maximum(n,1)[:,None]
def links_from_weights(w,**k): return {(int(r.argmax()),j) for j,r in enumerate(np.asarray(w))} if len(w) and len(w[0]) else set()
def statistics(ws): return {"entropy":0.0,"coverage":0.0}
