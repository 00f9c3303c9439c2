from sacrebleu.metrics import BLEU, CHRF, TER
def score(hypotheses, references, *, names=("bleu","chrf","ter"), num_bootstrap=1000, **k):
    out={}
    for n in names:
        m={"bleu":BLEU,"chrf":CHRF,"ter":TER}[n]()
        m = BLEU() if n=="bleu" else m
        r=m.corpus_score(list(hypotheses),[list(references)],n_bootstrap=num_bootstrap or 1)
        out[n]={"score":r.score,"signature":str(m.get_signature()),"ci":None}
    return out
