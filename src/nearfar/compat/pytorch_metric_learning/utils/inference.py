"""Search with a network, under the names of the other library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ....deep.unit_vectors import unit
from ....io import tensor_file
from ..distances import BaseDistance, CosineSimilarity, LpDistance
from ..mismatch import Mismatch

COMPARED_AT_ONCE = 1 << 24  # references that a block of queries is compared with, times its queries
KIND_OF_FILE = "references of FaissKNN"
THRESHOLD = 0.9  # from which cosine on two items match, unless a script says otherwise


class MatchFinder:
    """Which embeddings match, by a distance and a threshold.

    Parameters
    ----------
    distance : BaseDistance
    threshold : float, optional
        Pairs match up to this distance, or from this similarity on.
    """

    def __init__(self, distance: BaseDistance, threshold: float | None = None) -> None:
        self.distance = distance
        self.threshold = threshold

    def get_matching_pairs(
        self,
        query_emb: Tensor,
        ref_emb: Tensor | None = None,
        threshold: float | None = None,
        return_tuples: bool = False,
    ) -> Any:
        """Return an (n, m) array of whether queries match references, or the list of the pairs of their numbers."""
        with torch.no_grad():
            found = self._matches(self.distance(query_emb, ref_emb), threshold)
        return [tuple(pair) for pair in found.nonzero().tolist()] if return_tuples else found.cpu().numpy()

    def is_match(self, x: Tensor, y: Tensor, threshold: float | None = None) -> Any:
        """Return whether each row of x matches the same row of y, (n,) booleans; one boolean of single rows."""
        with torch.no_grad():
            x = self.distance.maybe_normalize(x)
            y = self.distance.maybe_normalize(y)
            found = self._matches(self.distance.pairwise_distance(x, y), threshold)
        return found.cpu().numpy() if len(found) > 1 else bool(found)

    def _matches(self, mat: Tensor, threshold: float | None) -> Tensor:
        level = self.threshold if threshold is None else threshold
        if level is None:
            raise Mismatch("MatchFinder: threshold: give one to the call or to the constructor")
        return mat >= level if self.distance.is_inverted else mat <= level


class CustomKNN:
    """The nearest references by any distance.

    Parameters
    ----------
    distance : BaseDistance
    batch_size : int, optional
        Queries at a time; the default follows the number of references.
    """

    def __init__(self, distance: BaseDistance, batch_size: int | None = None) -> None:
        self.distance = distance
        self.batch_size = batch_size

    @torch.no_grad()
    def __call__(
        self, query: Tensor, k: int, reference: Tensor | None = None, ref_includes_query: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the (n, k) distances and numbers of the nearest references, the nearest first.

        With `ref_includes_query`, query i is reference i, and not a neighbor of itself.
        """
        reference = query if reference is None else reference
        # one neighbor more where each query finds itself, which is taken out at the end
        number = min(k + int(ref_includes_query), len(reference))
        # (rows, m) distances at a time, so that the matrix of all of them is never held
        rows = self.batch_size or max(1, COMPARED_AT_ONCE // max(len(reference), 1))
        found = []
        for part in query.float().split(rows):
            mat = self.distance(part, reference.float())
            found.append(torch.topk(mat, number, dim=1, largest=self.distance.is_inverted))
        distances = torch.cat([part.values for part in found])
        indices = torch.cat([part.indices for part in found])
        return without_itself(distances, indices) if ref_includes_query else (distances, indices)


def without_itself(distances: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Drop number i from the neighbors of query i, or the last one where i is not among them."""
    n, k = indices.shape
    own = indices == torch.arange(n, device=indices.device)[:, None]
    own[:, -1] |= ~own.any(1)
    return distances[~own].view(n, k - 1), indices[~own].view(n, k - 1)


class FaissKNN:
    """The nearest references by squared Euclidean distance, exactly; faiss is not needed.

    Parameters
    ----------
    reset_before, reset_after : bool
        Forget the references before and after a call.
    index_init_fn : callable, optional
        A class of indexes of faiss: it is called with the number of dimensions, and searches instead.
    gpus : optional
        Not supported: vectors are compared on their own device.
    """

    def __init__(
        self,
        reset_before: bool = True,
        reset_after: bool = True,
        index_init_fn: Callable[[int], Any] | None = None,
        gpus: Any = None,
    ) -> None:
        if gpus is not None:
            raise NotImplementedError("FaissKNN: gpus: not supported, because vectors are compared on their own device")
        self.reset_before = reset_before
        self.reset_after = reset_after
        self.index_init_fn = index_init_fn
        self.index: Any = None

    def __call__(
        self, query: Tensor, k: int, reference: Tensor | None = None, ref_includes_query: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the (n, k) squared distances and numbers of the nearest references, the nearest first.

        With `ref_includes_query`, query i is reference i, and not a neighbor of itself.
        """
        if self.reset_before:
            self.reset()
        if reference is not None:
            self.add(reference)
        if self.index is None:
            raise Mismatch("FaissKNN: no references; call train_knn first")
        known = len(self.index) if isinstance(self.index, Tensor) else self.index.ntotal
        if k > known:
            raise Mismatch(f"k: expected at most {known}, the number of items, got {k}")
        found = self._search(query, k, ref_includes_query)
        if self.reset_after:
            self.reset()
        return found

    def _search(self, query: Tensor, k: int, ref_includes_query: bool) -> tuple[Tensor, Tensor]:
        if isinstance(self.index, Tensor):
            search = CustomKNN(LpDistance(normalize_embeddings=False, power=2))
            return search(query, k, self.index.to(query.device), ref_includes_query)
        number = min(k + int(ref_includes_query), self.index.ntotal)  # one more, the query itself, is left out below
        d, i = self.index.search(query.detach().float().cpu().numpy(), number)
        distances = torch.from_numpy(d).to(query.device)
        indices = torch.from_numpy(i).to(query.device)
        return without_itself(distances, indices) if ref_includes_query else (distances, indices)

    def train(self, embeddings: Any) -> None:
        """Take these references, (m, d) in a tensor or an array, and no others."""
        self.reset()
        self.add(embeddings)

    def add(self, embeddings: Any) -> None:
        """Take more references."""
        embeddings = torch.as_tensor(embeddings)
        if self.index_init_fn is None:
            if self.index is not None:
                embeddings = torch.cat([self.index, embeddings.to(self.index.device)])
            self.index = embeddings
            return
        rows = embeddings.detach().float().cpu().numpy()
        if self.index is None:
            self.index = self.index_init_fn(rows.shape[1])
            self.index.train(rows)
        self.index.add(rows)

    def save(self, filename: Any) -> None:
        """Write the references to a file: a safetensors file, or with `index_init_fn` one of faiss."""
        if self.index is None:
            raise Mismatch("FaissKNN: no references to save; call train first")
        if isinstance(self.index, Tensor):
            rows = self.index.detach().float().cpu().numpy()
            tensor_file.write(filename, {"embeddings": rows}, {"kind": KIND_OF_FILE})
            return
        import faiss

        faiss.write_index(self.index, str(filename))

    def load(self, filename: Any) -> None:
        """Take the references that `save` wrote."""
        if self.index_init_fn is not None:
            import faiss

            self.index = faiss.read_index(str(filename))
            return
        arrays, metadata = tensor_file.read(filename)
        if metadata.get("kind") != KIND_OF_FILE:
            raise Mismatch(f"{filename}: expected a file that FaissKNN.save wrote, and no other safetensors file")
        self.index = torch.from_numpy(arrays["embeddings"])

    def reset(self) -> None:
        self.index = None


class FaissKMeans:
    """Clusters by k-means, that of scikit-learn; faiss is not needed.

    Parameters
    ----------
    niter, nredo : int
        Iterations at most, and how often to start.
    """

    def __init__(self, niter: int = 20, nredo: int = 1, seed: int = 1234, **others: Any) -> None:
        if others:
            raise NotImplementedError(
                f"FaissKMeans: {', '.join(sorted(others))} is not supported; expected niter, nredo or seed"
            )
        self.niter = niter
        self.nredo = nredo
        self.seed = seed

    def __call__(self, x: Tensor, nmb_clusters: int) -> Tensor:
        """Return the (n,) numbers of the clusters of rows."""
        from sklearn.cluster import KMeans

        how = KMeans(nmb_clusters, n_init=self.nredo, max_iter=self.niter, random_state=self.seed)
        return torch.from_numpy(how.fit_predict(x.detach().cpu().numpy())).long()


class InferenceModel:
    """The nearest neighbors of items among others, by the embeddings of a network.

    `nearfar.index.Index` keeps embeddings in a file.

    Parameters
    ----------
    trunk : Module
        From items to features.
    embedder : Module, optional
        From features to embeddings.
    match_finder : MatchFinder, optional
        The default compares by cosines, and takes two items for a match if theirs is at least 0.9.
    normalize_embeddings : bool
        Scale embeddings to unit length.
    knn_func : callable, optional
        With the methods of `FaissKNN`.
    data_device, dtype : optional
        Where items are put before the network takes them, and in which type. By default, items are put where the
        network is.
    """

    def __init__(
        self,
        trunk: nn.Module,
        embedder: nn.Module | None = None,
        match_finder: MatchFinder | None = None,
        normalize_embeddings: bool = True,
        knn_func: Any = None,
        data_device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.trunk = trunk
        self.embedder = nn.Identity() if embedder is None else embedder
        self.match_finder = MatchFinder(CosineSimilarity(), THRESHOLD) if match_finder is None else match_finder
        self.normalize_embeddings = normalize_embeddings
        self.knn_func = FaissKNN(reset_before=False, reset_after=False) if knn_func is None else knn_func
        self.data_device = data_device
        self.dtype = dtype

    @torch.no_grad()
    def get_embeddings(self, x: Any) -> Tensor:
        """Return the (n, d) embeddings of items: a tensor, or a list of tensors or of what the network takes."""
        self.trunk.eval()
        self.embedder.eval()
        if isinstance(x, Sequence) and len(x) and isinstance(x[0], Tensor):
            x = torch.stack(list(x))
        if isinstance(x, Tensor):
            x = x.to(device=self._device(), dtype=self.dtype)
        found: Tensor = self.embedder(self.trunk(x))
        return unit(found) if self.normalize_embeddings else found

    def _device(self) -> Any:
        """Return where items are put: on `data_device`, or by default where the network's first parameter is."""
        if self.data_device is not None:
            return self.data_device
        first = next(self.trunk.parameters(), None)
        return None if first is None else first.device

    def get_embeddings_from_tensor_or_dataset(self, inputs: Any, batch_size: int) -> Tensor:
        """Return the embeddings of many items, `batch_size` at a time."""
        return torch.cat([self.get_embeddings(part) for part in self._parts(inputs, batch_size)])

    def _parts(self, inputs: Any, batch_size: int) -> Iterator[Any]:
        if isinstance(inputs, Dataset):
            for batch in DataLoader(inputs, batch_size=batch_size):
                yield batch[0] if isinstance(batch, list | tuple) else batch
        elif isinstance(inputs, list) and len(inputs) and isinstance(inputs[0], list | tuple):
            yield from inputs  # batches already
        else:
            for start in range(0, len(inputs), batch_size):
                yield inputs[start : start + batch_size]

    def train_knn(self, inputs: Any, batch_size: int = 64) -> None:
        """Embed the items among which neighbors are found: a tensor, a list, or a data set."""
        self.knn_func.train(self.get_embeddings_from_tensor_or_dataset(inputs, batch_size))

    def add_to_knn(self, inputs: Any, batch_size: int = 64) -> None:
        """Embed more of them."""
        self.knn_func.add(self.get_embeddings_from_tensor_or_dataset(inputs, batch_size))

    def get_nearest_neighbors(self, query: Any, k: int) -> tuple[Tensor, Tensor]:
        """Return the (n, k) squared distances and numbers of the nearest items, the nearest first."""
        if self.knn_func.index is None:
            raise Mismatch("InferenceModel: no references; call train_knn first")
        found: tuple[Tensor, Tensor] = self.knn_func(self.get_embeddings(query), k)
        return found

    def get_matches(
        self, query: Any, ref: Any = None, threshold: float | None = None, return_tuples: bool = False
    ) -> Any:
        """Return which queries match which references, as `MatchFinder.get_matching_pairs`."""
        reference = None if ref is None else self.get_embeddings(ref)
        return self.match_finder.get_matching_pairs(self.get_embeddings(query), reference, threshold, return_tuples)

    def is_match(self, x: Any, y: Any, threshold: float | None = None) -> Any:
        """Return whether the items of each pair match, as `MatchFinder.is_match`."""
        return self.match_finder.is_match(self.get_embeddings(x), self.get_embeddings(y), threshold)

    def save_knn_func(self, filename: Any) -> None:
        """Write the items among which neighbors are found to a file."""
        self.knn_func.save(filename)

    def load_knn_func(self, filename: Any) -> None:
        """Take the items that `save_knn_func` wrote."""
        self.knn_func.load(filename)
