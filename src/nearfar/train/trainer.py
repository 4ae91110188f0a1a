"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Task
from ..deep import distributed
from ..deep.networks.adapters import adapter_files
from ..deep.networks.embedder import Embedder
from ..deep.networks.trunks import inner_place, name_of_model
from ..deep.networks.weights import TRUNK
from .checkpoint import first_weights, load_tensors, load_tree, save_tensors, without_adapters
from .config import TrainConfig, TrainError
from .defaults import defaults_note
from .interrupts import Interrupts
from .loading import build_embedder, with_best_weights
from .loop import Loop
from .metric import MetricChoice, add_metric
from .monitor import score_unseen_and_seen
from .optim import rate_factor, set_rates
from .run import Run, RunFolder
from .rungs.choice import can_compare, choose_model, keep_unchecked, may_choose
from .rungs.interpolation import interpolate
from .scale.chunks import backward_of_chunks
from .scale.many_classes import average_drawn, clip_gradients, everywhere
from .settle import of_other_items, sampler_of
from .setup import build_loop
from .state import (
    Position,
    all_finite,
    begin_epoch,
    restore_rest,
    restore_weights,
    snapshot,
    split_weights,
)
from .task import protocol_note, training_items
from .timing.duration import RunTimer
from .timing.time_limit import TimePlan
from .trackers import Trackers
from .watchers import ProgressLine, Watcher

MOST_ITEMS_AGAIN = 100_000  # of all batches together, up to which a small network is trained again at the end: a minute
MOST_TEXTS_AGAIN = 2_000  # the same of a text model
SHARE_FOR_AGAIN = 0.2  # of the items that are held out, from which this is worth it
CHECK_EVERY = 10  # number of batches between checks of the loss on an accelerator, each of which synchronizes it


class Trainer:
    """A running training. Its errors do not mention checkpoints, because the folder may be a temporary one."""

    def __init__(
        self,
        loop: Loop,
        folder: RunFolder,
        interrupts: Interrupts,
        *,
        resume: bool = False,
        progress: bool = False,
        watchers: Sequence[Watcher] = (),
        timing: TimePlan | None = None,
    ) -> None:
        self.timing = timing
        self.out_of_time = False
        self.loop = loop
        self.folder = folder
        self.interrupts = interrupts
        self.main = loop.accelerator.is_main_process
        if self.main and loop.config.track:
            watchers = [*watchers, Trackers(loop.accelerator, loop.config, folder.path)]
        self.on_cpu = loop.accelerator.device.type == "cpu"
        self.resumed = resume and folder.last.exists()
        if self.resumed:
            self.position = self._resume()
        else:
            self.position = self._begin(resume)
        self.factor = rate_factor(loop.config, len(loop.data.sampler), loop.data.steps)
        if self.main:
            self.watchers = [*watchers, *self._own_watchers(progress)]
        else:
            self.watchers = []
        self.clock = (time.perf_counter(), self.position.step)
        self.timed_from = (0.0 if timing is None else timing.limit.clock(), self.position.step)
        self.slowness = 1.0

    # Starting

    def _begin(self, resume: bool) -> Position:
        if resume:
            self._refuse_other_config()
        self.loop.prepare()
        if self.main:
            self.folder.training_items.unlink(missing_ok=True)  # of a run that was killed before its first checkpoint
            device = str(self.loop.accelerator.device)
            self.folder.describe(self.loop.config, device, weights=self.loop.weights)
            self.folder.cut_log(-1)
        return Position()

    def _resume(self) -> Position:
        loop = self.loop
        folder = self.folder
        self._refuse_other_config()
        tensors, about = load_tensors(folder.last)
        if not about["step"] and not folder.state_path(0, 0).exists():  # the rungs `frozen` and `whitened`
            raise TrainError(f"{folder.path}: nothing to resume, because its network is not trained; start a new run")
        loop.weights = first_weights(about)  # the weights at the start of the run, not at this resumption
        whole = load_tree(folder.state_path(about["step"], 0))
        own = folder.state_path(about["step"], distributed.rank())
        state = load_tree(own) if own.exists() else whole
        position = restore_weights(loop, tensors, about, state)
        loop.prepare()
        restore_rest(loop, state, whole)
        if self.main:
            folder.reopen()
            folder.cut_log(position.step)
            folder.write_metrics(position.rows)
            folder.write_config(loop.config)  # a resumed run may have more epochs
        return position

    def _refuse_other_config(self) -> None:
        different = TrainConfig.from_json(self.folder.config).refused(self.loop.config)
        if different:
            raise TrainError(
                f"{self.folder.path}: cannot be resumed with other settings (run's / given): {'; '.join(different)}"
            )

    def _own_watchers(self, progress: bool) -> Iterator[Watcher]:
        config = self.loop.config
        if progress:
            done = self.position.step
            yield ProgressLine(
                self.loop.data.steps,
                config.epochs,
                done,
                self.loop.data.task,
                first=self._first_line(),
                timer=RunTimer.of(self.loop, done),
            )

    def _first_line(self) -> str:
        """Return what is known before the first batch: the protocol, the weights, the defaults, and the time."""
        data = self.loop.data
        defaults = defaults_note(data.plan.asked, data.config, data.task)
        planned = "" if self.timing is None else self.timing.sentence
        sentences = (protocol_note(data.config, data.task), self.loop.weights, defaults, data.plan.note, planned)
        return " ".join(filter(None, sentences))

    # The loop

    def run(self) -> Run:
        position = self.position
        config = self.loop.config
        try:
            while not self._has_ended() and not self._out_of_patience():
                self._epoch()
                self._finish_epoch()
                self._stop_if_requested(written=True)
            embedder = self._best_network()
            if embedder is not None and config.interpolation is not None:
                interpolate(embedder, self.loop.data, self.folder)
            self.whitening = self._add_metric(embedder)
            embedder = self._choose(embedder)
        finally:
            for watcher in self.watchers:
                watcher.close()
        return Run(
            folder=self.folder.path,
            config=config,
            epoch=position.epoch,
            step=position.step,
            best_epoch=position.best_epoch,
            best=position.best,
            task=self.loop.data.task if self.main else None,
            embedder=embedder,
        )

    def _best_network(self) -> Embedder | None:
        """Return the network with the weights of the best checkpoint, in the first process; None in the others.

        It is the one that was trained, where its weights are whole and its own: the last checkpoint has those of the
        last step. Those of one that was trained in several processes, or with adapters, are put into another.
        """
        if not self.main or not self.folder.best.is_file():
            return None
        if self.loop.accelerator.num_processes > 1 or self.loop.config.lora is not None:
            return build_embedder(self.folder, self.loop.config)
        embedder = self.loop.trainable.embedder
        is_last = self.position.best_epoch == self.position.epoch and self.loop.config.ema is None
        if is_last and not self.resumed:  # the checkpoint of a resumed run may have a metric
            return embedder.eval()
        return with_best_weights(embedder, self.folder, self.loop.about["shape"])

    def _add_metric(self, embedder: Embedder | None) -> MetricChoice | None:
        """Fit the closed-form metric of the config, if any, to the best network, print the result and return it."""
        found = None if embedder is None else add_metric(embedder, self.loop.data, self.folder)
        self.loop.accelerator.wait_for_everyone()
        if found is not None:
            self._say(str(found))
        return found

    def _has_ended(self) -> bool:
        """Return whether the last batch was trained, by the number of batches or because the time is over."""
        return self.position.step >= self.loop.data.steps or self.out_of_time

    def _check_time(self) -> None:
        """Note whether only the time for the scores is left; a plan leaves enough unless the machine becomes slower."""
        if self.timing is None or self.position.step >= self.loop.data.steps:
            return
        if self.timing.seconds_to_train(self._slowdown()) > 0:
            return
        self.out_of_time = True
        done = f"{self.position.step:,} of the {self.loop.data.steps:,} planned batches"
        self._say(f"The time is over after {done}, because they became slower; the best checkpoint is kept.")

    def _slowdown(self) -> float:
        """Return how many times slower than planned the batches of this epoch were."""
        if self.timing is None:
            return 1.0
        steps = self.position.step - self.timed_from[1]
        if steps > 0:
            self.slowness = self.timing.slowdown((self.timing.limit.clock() - self.timed_from[0]) / steps)
        return self.slowness

    def _say(self, text: str) -> None:
        """Print a line above the progress line, if there is one."""
        for watcher in self.watchers:
            if isinstance(watcher, ProgressLine):
                watcher.say(text)

    def _choose(self, embedder: Embedder | None) -> Embedder | None:
        """Compare the best network with what is cheaper, and return what is kept."""
        data = self.loop.data
        if embedder is not None and may_choose(data):
            if can_compare(data.task):
                timing = self.timing
                embedder = choose_model(
                    embedder,
                    data,
                    self.folder,
                    evaluations=self.position.by_class,
                    whitening=self.whitening,
                    train_again=self._train_again if self._may_train_again() else None,
                    frozen_sizes={} if timing is None else timing.frozen_sizes,
                    in_haste=timing is not None and timing.seconds_to_train(self.slowness) < 0,
                )
            else:
                embedder = keep_unchecked(embedder, data, self.folder)
        self.loop.accelerator.wait_for_everyone()
        return embedder

    def _may_train_again(self) -> bool:
        """Return whether the network can be trained again on all training classes, in a short time."""
        length = length_again(self.loop.config, self.loop.data.task, self.position.step)
        if length == 0.0 or distributed.world() > 1:
            return False
        if self.timing is None:
            return True
        seconds = length * self.position.step * self.slowness * self.timing.batch
        return seconds <= self.timing.seconds_to_train(self.slowness)

    def _train_again(self, epochs: float) -> dict[str, Tensor]:
        """Train the same network on all training classes for a number of epochs, and return its weights."""
        plan = self.loop.data.plan
        assert plan.task.validation is not None
        train = plan.task.train.joined(plan.task.validation)
        self._say(f"Training again on all {len(train.classes)} training classes, also those that were held out.")
        plain = {"patience": None, "metric": "none", "track": (), "checkpoint_every": 0, "validation": 0.0}
        batches = len(sampler_of(plan.config, train, None))  # of an epoch
        steps = max(1, round(epochs * batches))
        task = replace(plan.task, train=train, validation=None)
        whole = of_other_items(plan, task, **plain, epochs=ceil(steps / batches), steps=steps)
        with TemporaryDirectory(prefix="nearfar-") as path:
            loop = build_loop(whole)
            TrainerInMemory(loop, RunFolder(path), self.interrupts).run()
            with loop.averages.in_place():
                return {name: value.detach().clone() for name, value in loop.trainable.embedder.state_dict().items()}

    def _out_of_patience(self) -> bool:
        config = self.loop.config
        return config.patience is not None and self.position.since_best(f"unseen_{config.select}") >= config.patience

    def _epoch(self) -> None:
        position = self.position
        begin_epoch(self.loop, position)
        for batch in self.loop.data.batches(position.epoch, position.batch, self.loop.accelerator.device):
            self._add_up(self._step(*batch))
            position.step = position.step + 1
            position.batch = position.batch + 1
            self._report_step()
            self._check_time()
            if self._has_ended() or position.batch == len(self.loop.data.sampler):
                break  # the epoch is over, and its end writes the checkpoint
            self._stop_if_requested(written=False)
            if self.loop.config.checkpoint_every and position.step % self.loop.config.checkpoint_every == 0:
                self._checkpoint()

    def _step(self, *batch: Any) -> Tensor:
        loop = self.loop
        config = self.loop.config
        assert loop.model is not None
        assert loop.optimizer is not None
        set_rates(loop.optimizer, self.factor(self.position.step))
        loop.trainable.objective.collect_stats(self._is_logged(self.position.step + 1))
        try:
            if config.chunk is None:
                loss = loop.model(*batch)
            else:
                loss = backward_of_chunks(loop, *batch)
        except ValueError as error:
            raise self._failed(str(error)) from error
        if config.chunk is None:
            loop.accelerator.backward(loss)
        average_drawn(loop.trainable.objective)
        if config.clip is not None:
            clip_gradients(loop.model, loop.trainable.objective, loop.accelerator, config.clip)
        if self.on_cpu or self.position.step % CHECK_EVERY == 0:
            self._check_finite(loss)
        loop.optimizer.step()
        loop.optimizer.zero_grad()
        loop.averages.update(self.position.step + 1)
        return loss.detach()

    def _add_up(self, loss: Tensor) -> None:
        sums = self.position.sums
        for name, value in {"loss": loss, **self.loop.trainable.objective.parts_}.items():
            if name in sums:
                sums[name] = sums[name] + value.detach()
            else:
                sums[name] = value.detach()

    def _check_finite(self, loss: Tensor) -> None:
        """Raise a TrainError if values are not finite, before they reach the weights."""
        assert self.loop.model is not None
        values = self.loop.trainable.objective.parts_
        if not bool(torch.isfinite(loss)):
            bad = [f"{name} is {float(value)}" for name, value in values.items() if not torch.isfinite(value)]
            raise self._failed(f"the loss is not finite: {', '.join(bad) or float(loss.detach())}")
        gradients = (p.grad for p in self.loop.model.parameters() if p.grad is not None)
        if self.on_cpu and not self._everywhere(all_finite(gradients)):
            raise self._failed(f"the gradient of {' + '.join(values)} is not finite")

    def _everywhere(self, finite: bool) -> bool:
        return everywhere(self.loop.trainable.objective, finite, self.loop.accelerator.device)

    def _failed(self, what: str, step: int | None = None) -> TrainError:  # by default, the current step
        return TrainError(f"step {step or self.position.step + 1}, epoch {self.position.epoch + 1}: {what}")

    def _report_step(self) -> None:
        position = self.position
        if not self.main:
            return
        record = None
        if self._is_logged(position.step):
            record = self._record()
            self.folder.append_log(record)
        for watcher in self.watchers:
            watcher.on_step(position.step, position.epoch, record)

    def _is_logged(self, step: int) -> bool:
        return self.main and (step % self.loop.config.log_every == 0 or step == 1)

    def _record(self) -> dict[str, Any]:
        assert self.loop.optimizer is not None
        objective = self.loop.trainable.objective
        position = self.position
        return {
            "step": position.step,
            "epoch": position.epoch + 1,
            "parts": {name: float(value) for name, value in objective.parts_.items()},
            "active": {name: values["active"] for name, values in objective.stats_.items() if "active" in values},
            "lr": {group["name"]: group["lr"] for group in self.loop.optimizer.param_groups},
            "images_per_second": self._speed(),
        }

    def _speed(self) -> float:
        start, first_step = self.clock
        seconds = time.perf_counter() - start
        steps = self.position.step - first_step
        return steps * self.loop.config.batch_size / max(seconds, 1e-9)

    # Between epochs

    def _finish_epoch(self) -> None:
        position = self.position
        config = self.loop.config
        self._check_weights()  # before they are scored, and possibly kept as the best
        speed = self._speed()
        means = {name: float(total) / max(1, position.batch) for name, total in position.sums.items()}
        position.epoch = position.epoch + 1
        position.batch = 0
        position.sums = {}
        row: dict[str, Any] = {"epoch": position.epoch, "step": position.step, "loss": means.pop("loss")}
        row |= {f"learned_{name}": value for name, value in self.loop.trainable.objective.learned_values().items()}
        row |= {f"part_{name}": value for name, value in means.items()} | {"images_per_second": round(speed, 1)}
        if self._has_ended() or position.epoch % config.eval_every == 0:
            with self.loop.averages.in_place():
                scores, by_class = score_unseen_and_seen(self.loop)
                row |= scores
                if by_class is not None:
                    deciding = getattr(by_class, config.select)
                    position.by_class.append(torch.from_numpy(np.stack([deciding, by_class.map_at_r])))
                self._keep_best(scores)
        position.rows.append(row)
        self._checkpoint()
        if self.main:
            self.folder.write_metrics(position.rows)
        for watcher in self.watchers:
            watcher.on_epoch(row)
        self.clock = (time.perf_counter(), position.step)
        if self.timing is not None:
            self.timed_from = (self.timing.limit.clock(), position.step)

    def _keep_best(self, scores: dict[str, float]) -> None:
        """Keep the weights with the best validation score, or the latest ones without validation classes."""
        position = self.position
        score = scores.get(f"unseen_{self.loop.config.select}")
        chooses = self.loop.config.protocol == "honest"  # in the protocol of the papers, the last one is kept
        if chooses and score is not None and position.best is not None and score <= position.best:
            return
        position.best = score
        position.best_epoch = position.epoch
        tensors, _ = split_weights(self.loop)
        if self.main:
            plain = without_adapters(tensors, self.loop.config)
            save_tensors(self.folder.best, plain, {**self._about(), "select": self.loop.config.select})
            if self.loop.config.lora is not None:
                self._write_adapters(tensors)

    def _write_adapters(self, tensors: dict[str, Tensor]) -> None:
        """Write the adapters of the best weights separately, in the format of peft."""
        config = self.loop.config
        assert config.lora is not None
        inner = inner_place(self.loop.trainable.embedder.trunk)
        alpha = config.adapter_scale * config.lora
        base = name_of_model(config.trunk)
        found, settings = adapter_files(tensors, TRUNK + inner, config.lora, alpha, base)
        self.folder.write_adapters(found, settings)

    def _about(self) -> dict[str, Any]:
        position = self.position
        loop = self.loop
        counts = {"step": position.step, "epoch": position.epoch, "best": position.best}
        return {**counts, "config": loop.config.digest, **loop.about}

    def _check_weights(self) -> None:
        assert self.loop.model is not None
        if not self._everywhere(all_finite(self.loop.model.parameters())):
            raise self._failed("the weights are not finite", self.position.step)

    def _checkpoint(self) -> None:
        self._check_weights()
        loop = self.loop
        position = self.position
        if self.main and not self.folder.training_items.exists():
            # not before the first batch: of a million photos, to read each takes minutes
            items = training_items(loop.config, loop.data.task, self.folder.start)
            items.write(self.folder.training_items)
        tensors, extra = split_weights(loop)
        self.folder.save_state(position.step, distributed.rank(), snapshot(loop, position, extra))
        loop.accelerator.wait_for_everyone()
        if self.main:
            self.folder.commit(tensors, self._about())
        loop.accelerator.wait_for_everyone()

    def _stop_if_requested(self, written: bool) -> None:
        requested = self.interrupts.requested
        if distributed.world() > 1:
            if not written and self.position.step % CHECK_EVERY:
                return
            requested = bool(distributed.total(torch.tensor(float(requested), device=self.loop.accelerator.device)))
        if requested:
            first = self.position.best_epoch == 0
            if first:  # no evaluation has chosen one yet
                with self.loop.averages.in_place():
                    self._keep_best({})
            if first or not written:
                self._checkpoint()
            raise KeyboardInterrupt


class TrainerInMemory(Trainer):
    """A training whose network is used at once: it scores nothing and writes no checkpoint."""

    def _finish_epoch(self) -> None:
        self._check_weights()
        self.position.epoch += 1
        self.position.batch = 0
        self.position.sums = {}

    def _checkpoint(self) -> None:
        """Write nothing."""


def length_again(config: TrainConfig, task: Task, steps: int) -> float:
    """Return the length of the training on all classes that follows one of so many batches, relative to it.

    It has as many epochs, and so more batches. 0 if none follows.
    """
    if task.validation is None or config.keep != "best":
        return 0.0
    whole = len(task.train) + len(task.validation)
    trained = steps * config.batch_size
    if config.starts_pretrained:
        is_short = task.train.texts is not None and trained <= MOST_TEXTS_AGAIN
    else:
        is_short = trained <= MOST_ITEMS_AGAIN
    is_worth_it = len(task.validation) >= SHARE_FOR_AGAIN * whole
    return whole / len(task.train) if is_short and is_worth_it else 0.0
