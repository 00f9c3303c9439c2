import numpy as np
def heatmap(*a,**k): return None
def to_png(f,p): pass
def to_array(f): return np.zeros((10,10,3),np.uint8)
