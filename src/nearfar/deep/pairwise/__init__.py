"""The engine of pair and triplet losses: anchors compared with a reference, block by block.

A loss computes the cost of one block of anchors. The engine does the rest: it gathers the batch, compares it with the
reference, cuts it into blocks that fit into memory, adds up, divides once, and computes the gradient in the same
blocks. No list of pairs or triplets is built, and the value is the same for any block size and any number of processes.

From the call to the gradient::

    term(embeddings, labels)                 objective/terms.py: Term.forward
        |   check, gather from all processes
        v
    Batch: x (n, d), y                       objective/batch.py, gathering.py
        |   RowLoss.comparison: the reference, the distance, and the result of a first pass (contextual.py)
        v
    Comparison: x (n, d), ref (m, d)         comparison.py
        |   sum_over_anchors cuts the anchors into blocks (blockwise.py)
        v
    Rows: d, pos, neg, (b, m) each           one block: the distances of b anchors, and who is similar or dissimilar
        |   the miner, if there is one, narrows pos and neg; then the method's own rows(rows)
        v
    numerator, denominator, (b,) each        hinges.py, reductions.py, soft_histograms.py: sums over a row
        |   added over the blocks
        v
    value = sum numerators / sum denominators        one division (RowLoss.divided), over all processes

In the backward pass, the gradient in d of each block becomes two matrix products, which are added to the gradients in x
and ref. With one numerator per anchor, this happens in the forward pass already, while the block is in the processor's
cache; with several, the blocks are kept, or computed again. A batch of a single block has an ordinary graph.

The files:

- `comparison.py`: `Comparison` and `Rows`, the four distances, and the masks of who is similar;
- `row_loss.py`: `RowLoss`, the base of these losses, which runs the flow above;
- `blockwise.py`: the sum over blocks, and its gradient;
- `contextual.py`: losses that need something of the whole batch before a row can be counted;
- `hinges.py`: positives against negatives in a row, without triplets;
- `reductions.py`: sums over a row with gradients written by hand, such as the masked log-sum-exp;
- `soft_histograms.py`: soft histograms of a row;
- `groups.py`: embeddings whose dimensions form groups, for ensembles;
- `triplets.py`: explicit triplets, for the few methods that compute something from each one.

What a new loss needs to know of `Rows`:

- `d` is smaller for nearer samples, whatever the distance: "cosine" is 1 - s, and "dot" is minus the inner product;
- `pos` and `neg` never contain the anchor itself, nor samples of unknown relation. A row may have no positives, no
  negatives, or neither: the numerator must then be finite, and the denominator states whether the anchor counts;
- entries outside a mask are real distances. Select with ``torch.where(mask, term, 0.0)``; multiplying by the mask would
  turn an infinite term into NaN;
- instead of a loop over positives, `hinges.near_distances` returns their distances, `reductions.masked_logsumexp` a
  log-sum-exp over a mask (-inf for an empty row), and `hinges.hinges` the sum of [t - v]_+ over thresholds and values;
- some miners choose triplets. They are in `triplets`, and `pos` and `neg` then mark their members, which is all that a
  loss of pairs needs.

The numerator may be (b, k) with a (b, k) denominator: the value is then the sum of k means, such as one over similar
and one over dissimilar pairs. Denominators may be booleans or counts.

A new loss is a function of `Rows`. Here, the hinge between the mean distances to both kinds of samples:

>>> import torch
>>> from nearfar.deep import RowLoss, Rows
>>> class MeanGapLoss(RowLoss):
...     def __init__(self, margin=0.2, *, miner=None, block=None):
...         super().__init__(distance="euclidean", normalize=True, miner=miner, block=block)
...         self.margin = margin
...
...     def rows(self, rows: Rows):
...         n_near = rows.pos.sum(1)
...         n_far = rows.neg.sum(1)
...         near = torch.where(rows.pos, rows.d, 0.0).sum(1) / n_near.clamp_min(1)
...         far = torch.where(rows.neg, rows.d, 0.0).sum(1) / n_far.clamp_min(1)
...         counts = (n_near > 0) & (n_far > 0)  # anchors that have both
...         hinge = (self.margin + near - far).clamp_min(0)
...         return torch.where(counts, hinge, 0.0), counts

It works at once with references, memories, miners, blocks, and in sums with other terms:

>>> from nearfar import BatchHard
>>> x = torch.randn(32, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
>>> y = torch.arange(32) // 4
>>> (MeanGapLoss() + 0.5 * MeanGapLoss(0.1, miner=BatchHard()))(x, y).backward()
>>> torch.testing.assert_close(MeanGapLoss(block=5)(x, y), MeanGapLoss()(x, y))

To make it a method of the library, follow "Add a method" in CONTRIBUTING.md.
"""
