"""Python in processes of its own that start at once: each is forked from one that has imported what takes seconds.

For tests of what a process does. A test of how Python itself is started (its options, its search path, what an import
costs) starts it by `subprocess`.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

TIME_LIMIT = 300  # seconds, after which a process is ended
SPENT: list[float] = []  # seconds of processor time of each process that has ended

# Reads one request a line: {words, cwd, env, folder, limit}; forks a process that runs the words as Python does, with
# files of the folder, `out` and `err`, as its standard output and error; answers with its status and the seconds of
# processor time that it took, once it has ended.
SERVER = """
import gc, importlib, json, os, runpy, signal, sys, traceback, warnings

gc.disable()
gc.set_threshold(10_000, 20, 20)

for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # an extra that is not installed


def perform(words):
    kind, rest = words[0], words[1:]
    if kind == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = type(sys)("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(kind))
        runpy.run_path(kind, run_name="__main__")


def child(request):
    for name, stream in (("out", 1), ("err", 2)):
        file = os.open(os.path.join(request["folder"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0)
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.alarm(request["limit"])
    warnings._processoptions([text for text in request["env"].get("PYTHONWARNINGS", "").split(",") if text])
    threads = request["env"].get("OMP_NUM_THREADS")
    if threads and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(threads))
    code = 1
    try:
        perform(request["words"])
        code = 0
    except SystemExit as stop:
        code = stop.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


gc.freeze()  # what is imported is no garbage: to look through it takes each process half a second
gc.enable()
sys.path.remove("")
for line in sys.stdin:
    request = json.loads(line)
    process = os.fork()
    if process == 0:
        child(request)
    _, status, used = os.wait4(process, 0)
    print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)
"""
# What most commands, examples and pages import in the end. All of it is other people's: our own modules are imported by
# the process that a test starts.
IMPORTED = (
    "numpy",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "scipy.stats",
    "sklearn.cluster",
    "sklearn.datasets",
    "sklearn.decomposition",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.model_selection",
    "sklearn.neighbors",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "torch",
    "torch._dynamo",  # the first optimizer of a process imports it
    "torch.nn.parallel",
    "accelerate",
    "safetensors.torch",
    "PIL.Image",
    "rich.console",
    "rich.progress",
    "rich.table",
    "cyclopts",
    "msgspec",
)


@cache
def server(*imported):
    """The process from which others are forked, and which has imported these modules; it ends with the tests."""
    command = [sys.executable, "-c", SERVER, *imported]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.stdin.close)
    return process


def run(*words, cwd=None, env=None, limit=TIME_LIMIT, imported=IMPORTED):
    """Run Python with words as `python words...`: -m module, -c code or a file; returns what `subprocess.run` does.

    Where processes cannot be forked (Windows), Python is started anew.
    """
    words = [str(word) for word in words]
    if not hasattr(os, "fork"):
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    with tempfile.TemporaryDirectory() as folder:
        request = {"words": words, "cwd": str(cwd or os.getcwd()), "env": dict(env or os.environ)}
        request |= {"folder": folder, "limit": limit}
        process = server(*imported)
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        code, seconds = process.stdout.readline().split()
        SPENT.append(float(seconds))
        out, err = ((Path(folder) / name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(words, int(code), out, err)
