"""The chance of every tuple of an anchor to be among k of them, drawn without replacement."""


def reference(tuples, k):
    """Return {tuple: chance} for tuples whose first entry is their anchor."""
    chances = {}
    for one in tuples:
        of_anchor = [other for other in tuples if other[0] == one[0]]
        chances[one] = min(1.0, k / len(of_anchor))
    return chances
