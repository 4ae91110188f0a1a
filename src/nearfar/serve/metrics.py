"""Counts and times of requests, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds


class Metrics:
    """Counts and times of all responses since the start of the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = Counter[tuple[str, int]]()
        self._first = Counter[tuple[str, int]]()  # by the first bucket that a request is within
        self._seconds = Counter[str]()

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count one request; `path` is the path of a route, so that there are few different ones."""
        with self._lock:
            self._count[path, status] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]  # a sum of floats
            self._first[path, bisect_left(BUCKETS, seconds)] += 1

    def text(self, items: float) -> str:
        """Return all metrics in the text format of Prometheus; the number of items is NaN if it is unknown."""
        number = "NaN" if items != items else str(items)
        with self._lock:
            lines = [
                "# TYPE nearfar_items gauge",
                f"nearfar_items {number}",
                "# TYPE nearfar_requests_total counter",
            ]
            for (path, status), count in sorted(self._count.items()):
                lines.append(f'nearfar_requests_total{{path="{path}",status="{status}"}} {count}')
            lines.append("# TYPE nearfar_request_seconds histogram")
            for path, total in sorted(self._seconds.items()):
                count = sum(n for (other, _), n in self._count.items() if other == path)
                within = 0
                for place, bucket in enumerate(BUCKETS):
                    within += self._first[path, place]
                    lines.append(f'nearfar_request_seconds_bucket{{path="{path}",le="{bucket:g}"}} {within}')
                lines.append(f'nearfar_request_seconds_bucket{{path="{path}",le="+Inf"}} {count}')
                lines.append(f'nearfar_request_seconds_sum{{path="{path}"}} {total:.6f}')
                lines.append(f'nearfar_request_seconds_count{{path="{path}"}} {count}')
        return "\n".join(lines) + "\n"
