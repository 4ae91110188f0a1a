"""Minkowski distances in plain loops."""


def reference(x, ref, p=2.0, power=1.0):
    """Return a list of rows of distances."""
    rows = []
    for one in x:
        row = []
        for other in ref:
            differences = [abs(a - b) for a, b in zip(one, other, strict=True)]
            if p == "inf":
                value = max(differences)
            else:
                value = sum(difference**p for difference in differences) ** (1 / p)
            row.append(value**power)
        rows.append(row)
    return rows
