"""The NCA loss of a batch in plain loops."""


def reference(
    x,
    y,
    *,
    pooled=None,
    scores=None,
    proxies=None,
    temperature=1.0,
    denominator="all",
    positives="sum",
    normalize=False,
):
    z = x / x.norm(dim=1, keepdim=True) if normalize else x
    known = [i for i in range(len(x)) if y[i] >= 0]
    losses = []
    for i in known:
        e = {j: (-((z[i] - z[j]) ** 2).sum() / temperature).exp() for j in known if j != i}
        mates = [j for j in e if y[j] == y[i]]
        below = [j for j in e if denominator == "all" or y[j] != y[i]]
        if not mates or not below:
            continue
        total = sum(e[j] for j in below)
        if positives == "each":
            losses.append(-sum((e[j] / total).log() for j in mates) / len(mates))
        else:
            losses.append(-(sum(e[j] for j in mates) / total).log())
    return sum(losses) / len(losses) if losses else x.sum() * 0
