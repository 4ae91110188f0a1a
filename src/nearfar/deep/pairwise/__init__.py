"""The engine of pair and triplet losses: anchors compared with a reference, block by block.

A loss here says what one block of anchors costs. The engine does the rest: it gathers the batch, compares it, cuts it
into blocks that fit, adds up, divides once, and finds the gradient in the same blocks. No list of pairs or triplets is
built, and the value is the same for any block and on any number of processes.

From the call to the gradient::

    term(embeddings, labels)                 objective/terms.py: Term.forward
        |   check, gather from all processes
        v
    Batch: x (n, d), y                       objective/batch.py, gathering.py
        |   RowLoss.comparison: what with what, by which distance, and what a first pass found (contextual.py)
        v
    Comparison: x (n, d), ref (m, d)         comparison.py
        |   sum_over_anchors cuts the anchors into blocks (blockwise.py)
        v
    Rows: d, pos, neg, (b, m) each           one block: the distances of b anchors, who is similar, who is not
        |   the miner, if there is one, narrows pos and neg; then the method's own rows(rows)
        v
    numerator, denominator, (b,) each        hinges.py, reductions.py, soft_histograms.py: sums over a row
        |   added over the blocks
        v
    value = sum numerators / sum denominators        one division (RowLoss.divided), over all processes

Backward, each block's gradient in d becomes two matrix products, which are added to the gradients in x and ref. With
one numerator this was done in the forward pass already, while the block was in the processor's cache; with several, the
blocks are kept, or computed again. A batch of a single block has an ordinary graph.

The files:

- `comparison.py`: `Comparison` and `Rows`, the four distances, and the masks of who is similar;
- `row_loss.py`: `RowLoss`, the base of these losses, which runs the flow above;
- `blockwise.py`: the sum over blocks, and its gradient;
- `contextual.py`: losses that need something of the whole batch before a row can be counted;
- `hinges.py`: positives against negatives in a row, without triplets;
- `reductions.py`: sums over a row with gradients of their own, such as the masked log-sum-exp;
- `soft_histograms.py`: soft histograms of a row;
- `triplets.py`: explicit triplets, for the few methods that make something from each.

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

It has references, memories, miners, blocks and sums with other terms at once:

>>> from nearfar import BatchHard
>>> x = torch.randn(32, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
>>> y = torch.arange(32) // 4
>>> (MeanGapLoss() + 0.5 * MeanGapLoss(0.1, miner=BatchHard()))(x, y).backward()
>>> torch.testing.assert_close(MeanGapLoss(block=5)(x, y), MeanGapLoss()(x, y))

To make it a method of the library, follow "Add a method" in CONTRIBUTING.md.
"""
