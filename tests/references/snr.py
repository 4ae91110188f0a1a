"""Signal-to-noise distances in plain loops."""


def variance(values):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def reference(x, ref):
    """Return a list of rows of distances."""
    rows = []
    for one in x:
        noise = [variance([a - b for a, b in zip(one, other, strict=True)]) for other in ref]
        rows.append([value / variance(list(one)) for value in noise])
    return rows
