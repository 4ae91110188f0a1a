"""The triplet loss of one group of dimensions: the one whose number is the cluster of all samples."""

from . import triplet


def reference(x, y, *, ids=None, clusters=None, groups=2, pooled=None, scores=None, proxies=None):
    if clusters is None:
        return triplet.reference(x, y)
    (cluster,) = {clusters[sample] for sample in ids}
    if cluster == -1:
        return triplet.reference(x, y)
    dim = x.shape[1]
    dims, start = [], 0
    for group in range(groups):
        length = dim // groups + (1 if group < dim % groups else 0)
        dims.append(range(start, start + length))
        start += length
    return triplet.reference(x[:, list(dims[cluster])], y)
