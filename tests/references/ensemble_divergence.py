"""Every pair of groups of every sample of a known class."""

from torch.nn.functional import pad

from .bier import lengths_of


def reference(x, y, *, pooled=None, scores=None, proxies=None, groups=2, margin=1.0):
    lengths = lengths_of(groups, x.shape[1])
    total, terms = x.sum() * 0, 0
    for row, label in zip(x, y, strict=True):
        if label == -1:
            continue
        parts = [pad(part / part.norm(), (0, max(lengths) - len(part))) for part in row.split(lengths)]
        for j in range(len(parts)):
            for k in range(j + 1, len(parts)):
                total = total + (margin - (parts[j] - parts[k]).square().sum()).clamp_min(0)
                terms += 1
    return total / max(terms, 1)
