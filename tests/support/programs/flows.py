"""Drives the real client's code through loads, with a fake server, adapter and NIXL library.

    flows.py DIRECTORY

Each flow runs in a process of its own, forked from this one, and has ``DIRECTORY/<flow>`` for its
metrics: the client's own, or ours, as the environment and the `sitecustomize` on the path have it.
The NIXL library, which needs the hardware, is replaced; so is the clock, which advances by a known
step at each look, so that both sides time the same spans.
"""

from __future__ import annotations

import itertools
import os
import sys
import tarfile
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# --------------------------------------------------------------------------------------
# The NIXL library


class Agent:
    """An agent of the NIXL library, whose transfers go as ``states`` says, the last for ever."""

    states: tuple[str, ...] = ("PROC", "DONE")

    def __init__(self, name: str, _config: object) -> None:
        self.name = name
        self._left: list[str] = []

    def make_prepped_xfer(self, **_given: Any) -> object:
        self._left = list(self.states)
        return object()

    def check_xfer_state(self, _handle: object) -> str:
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]

    def get_agent_metadata(self) -> bytes:
        return b"metadata"

    def add_remote_agent(self, _metadata: bytes) -> str:
        return "remote"

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_args, **_kwargs: None


def put_nixl_in_place() -> None:
    package, api = types.ModuleType("nixl"), types.ModuleType("nixl._api")
    package.__path__ = []
    api.nixl_agent = Agent
    api.nixl_agent_config = lambda **given: given
    sys.modules.update({"nixl": package, "nixl._api": api})
    # Wheels for a certain CUDA go before it; none of them is here.
    for name in ("nixl_cu12", "nixl_cu13"):
        assert name not in sys.modules


put_nixl_in_place()

import torch  # noqa: E402
from modelexpress import p2p_pb2  # noqa: E402
from modelexpress.accelerators import CudaAcceleratorBackend  # noqa: E402
from modelexpress.adapter import EngineAdapter, StrategyFailed  # noqa: E402
from modelexpress.engines.trtllm.loader import MxModelLoader  # noqa: E402
from modelexpress.load_strategy.context import LoadContext, LoadResult  # noqa: E402
from modelexpress.load_strategy.rdma_strategy import RdmaStrategy  # noqa: E402
from modelexpress.metadata import artifact_transfer  # noqa: E402
from modelexpress.metrics import enable_metrics, metrics  # noqa: E402
from modelexpress.nixl_transfer import NixlTransferManager  # noqa: E402
from modelexpress.types import TensorDescriptor  # noqa: E402

# --------------------------------------------------------------------------------------
# What a load meets


class Accelerator(CudaAcceleratorBackend):
    """CUDA by name; its memory is the host's."""

    def set_device(self, device_id: int) -> None:
        pass

    def synchronize(self, device_id: int | None = None) -> None:
        pass


class Adapter(EngineAdapter):
    """An engine with one small model. ``faults``: what each receive's end raises, None for none."""

    rdma_loaded = False
    rdma_transform_protocol_version = None

    def __init__(self, *faults: BaseException | None) -> None:
        self.faults = list(faults)
        self.current_model = None

    def discover_tensors(self, _result: LoadResult) -> dict[str, torch.Tensor]:
        return {"weight": torch.zeros(4), "bias": torch.zeros(2)}

    def after_rdma_receive(self, result: LoadResult) -> LoadResult:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        result.publishable = False  # publishing is another story, with threads of its own
        return result

    def load_via_native(self, result: LoadResult) -> LoadResult:
        result.publishable = False
        return result

    def reinit_for_retry(self, result: LoadResult) -> LoadResult:
        return result


def descriptors() -> list[Any]:
    return [
        p2p_pb2.TensorDescriptor(name="weight", addr=1, size=16, dtype="torch.float32"),
        p2p_pb2.TensorDescriptor(name="bias", addr=2, size=8, dtype="torch.float32"),
    ]


class Server:
    """The client of the metadata server. ``sources``: accelerator and load of each of rank 0."""

    REQUIRES_P2P_METADATA = False

    def __init__(
        self,
        *sources: tuple[str, float | None],
        others: int = 0,
        listing: Exception | None = None,
        metadata: Callable[[], Any] | None = None,
    ) -> None:
        self.sources, self.others = sources, others
        self.listing, self.metadata = listing, metadata

    def list_sources(self, **_given: Any) -> Any:
        if self.listing is not None:
            raise self.listing
        found = [
            p2p_pb2.SourceInstanceRef(mx_source_id="s", worker_id="o", worker_rank=1)
        ] * self.others
        for number, (accelerator, load) in enumerate(self.sources):
            each = p2p_pb2.SourceInstanceRef(
                mx_source_id="s",
                worker_id=f"w{number}",
                worker_rank=0,
                accelerator=accelerator,
            )
            if load is not None:
                each.source_load = load
            found.append(each)
        return types.SimpleNamespace(instances=found)

    def get_metadata(self, **_given: Any) -> Any:
        if self.metadata is not None:
            return self.metadata()
        return found_worker("cuda")


def found_worker(accelerator: str) -> Any:
    worker = p2p_pb2.WorkerMetadata(worker_rank=0, nixl_metadata=b"x", accelerator=accelerator)
    worker.tensor_source.tensors.extend(descriptors())
    return types.SimpleNamespace(found=True, worker=worker)


def raising(error: Exception) -> Callable[[], Any]:
    def get() -> Any:
        raise error

    return get


CUDA = ("cuda", None)


def context(server: Server, *faults: BaseException | None) -> LoadContext:
    adapter = Adapter(*faults)
    return LoadContext(
        model_config=types.SimpleNamespace(),
        load_config=types.SimpleNamespace(),
        target_device=torch.device("cpu"),
        global_rank=0,
        worker_rank=0,
        local_rank=0,
        device_id=0,
        identity=p2p_pb2.SourceIdentity(model_name="org/model", dtype="bfloat16"),
        mx_client=server,
        worker_id="me",
        mx_server_url="nowhere:1",
        adapter=adapter,
        accelerator_backend=Accelerator(),
    )


def load(server: Server, *faults: BaseException | None) -> None:
    """A load by the client's own loader, falling back to the engine's native one."""
    loader = MxModelLoader.__new__(MxModelLoader)  # its own set-up asks TensorRT-LLM
    loader._ctx = context(server, *faults)
    enable_metrics()
    loader.load_model(torch.nn.Module())


def strategy(server: Server, *faults: BaseException | None) -> None:
    """The strategy alone, which raises when it has to fall back."""
    enable_metrics()
    model = torch.nn.Module()
    RdmaStrategy().load(LoadResult(value=model, model=model), context(server, *faults))


# --------------------------------------------------------------------------------------
# The flows


def expect(kind: type[BaseException], function: Any, *given: Any, **more: Any) -> None:
    try:
        function(*given, **more)
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected")


FLOWS: dict[str, Callable[[], None]] = {}


def flow(function: Callable[[], None]) -> Callable[[], None]:
    FLOWS[function.__name__] = function
    return function


FAULT = RuntimeError("https://user:secret@peer/?token=1 went away")


@flow
def success() -> None:
    load(Server(("cuda", 0.25), ("cuda", 0.75), others=3))


@flow
def retry_then_success() -> None:
    load(Server(CUDA, CUDA, CUDA), FAULT, None)


@flow
def fallback() -> None:
    load(Server(CUDA, CUDA, CUDA, CUDA), FAULT, FAULT, FAULT)
    expect(StrategyFailed, strategy, Server(CUDA), FAULT)


@flow
def metadata_that_raises() -> None:
    load(Server(CUDA, CUDA, metadata=raising(FAULT)))
    expect(StrategyFailed, strategy, Server(CUDA, metadata=raising(FAULT)))


@flow
def metadata_that_is_none() -> None:
    load(Server(CUDA, metadata=lambda: types.SimpleNamespace(found=False)))
    empty = types.SimpleNamespace(found=True, worker=p2p_pb2.WorkerMetadata())
    expect(StrategyFailed, strategy, Server(CUDA, metadata=lambda: empty))


@flow
def accelerator_mismatch() -> None:
    load(Server(("rocm", None), ("rocm", 0.5), CUDA))
    load(Server(("", None), metadata=lambda: found_worker("rocm")))
    expect(StrategyFailed, strategy, Server(("rocm", None)))


@flow
def empty_list() -> None:
    load(Server())
    load(Server(others=4))


@flow
def list_error() -> None:
    load(Server(listing=FAULT))
    assert RdmaStrategy()._find_source_instances(context(Server(listing=FAULT))) == []


@flow
def finding_alone() -> None:
    for policy in ("random", "rendezvous_hash", "load_aware", "topology_aware", "no such"):
        os.environ["MX_P2P_SOURCE_SELECTOR"] = policy
        found = RdmaStrategy()._find_source_instances(
            context(Server(("cuda", 0.5), ("cuda", 0.5), ("rocm", 1.0), others=2))
        )
        assert len(found) == 2


@flow
def keyboard_interrupt() -> None:
    expect(KeyboardInterrupt, load, Server(CUDA, CUDA), KeyboardInterrupt())
    expect(KeyboardInterrupt, load, Server(CUDA, metadata=raising(KeyboardInterrupt())))


@flow
def transfer_that_times_out() -> None:
    Agent.states = ("PROC",)
    os.environ["MX_TRANSFER_TIMEOUT"] = "3"
    load(Server(CUDA, CUDA))


@flow
def transfer_that_fails() -> None:
    Agent.states = ("PROC", "ERR")
    load(Server(CUDA))


def manager() -> NixlTransferManager:
    made = NixlTransferManager("agent", 0, accelerator_backend=Accelerator())
    made.initialize()
    made.register_tensors(Adapter().discover_tensors(None))
    return made


def described(*names: str, size: int = 16, dtype: str = "torch.float32") -> list[TensorDescriptor]:
    return [TensorDescriptor(name, 1, 8 if name == "bias" else size, 0, dtype) for name in names]


@flow
def receives() -> None:
    enable_metrics()
    receive = manager().receive_from_source
    assert receive(b"m", described("weight", "bias"))[1] == 2
    assert receive(b"m", described("weight"))[1] == 1
    assert receive(b"m", described("weight", "bias", "more"))[1] == 2
    assert receive(b"m", described("else"))[1] == 0
    assert receive(b"m", [])[1] == 0
    expect(Exception, receive, b"m", described("weight", size=4))
    expect(Exception, receive, b"m", described("weight", dtype="torch.int8"))
    expect(Exception, receive, b"m", described("weight"), require_exact_match=True)
    expect(Exception, receive, b"m", [], require_exact_match=True)
    Agent.states = ("ERR",)
    expect(RuntimeError, receive, b"m", described("weight", "bias"))
    Agent.states = ("PROC",)
    expect(TimeoutError, receive, b"m", described("weight", "bias"), timeout_seconds=2)


@flow
def waits() -> None:
    enable_metrics()
    made = manager()
    for states, error in ((("PROC", "SUCCESS"), None), (("FAIL",), RuntimeError),
                          (("PROC",), TimeoutError)):  # fmt: skip
        Agent.states = states
        for wait, what in ((made._wait_for_xfer, None), (made._wait_for_xfers, [None])):
            made._agent.make_prepped_xfer()
            if error is None:
                wait(what, 5, "it")
            else:
                expect(error, wait, what, 5, "it")
    made._wait_for_xfers([], 5, "nothing")


@flow
def artifacts() -> None:
    enable_metrics()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "source" / "deep").mkdir(parents=True)
        (home / "source" / "deep" / "kernel.so").write_bytes(os.urandom(1000))
        for kind in ("torch_compile_cache", "triton_cache", "tvm_ffi_cache", "deep_gemm_cache"):
            make = getattr(artifact_transfer, f"{kind}_artifact_transfer")
            transfer = make(home / "source", home / kind, home / f"{kind}.bundle")
            install(transfer, transfer.prepare_source().tar_path)
            assert (home / kind / "deep" / "kernel.so").stat().st_size == 1000
        bad = home / "bad.bundle" / "artifact.tar"
        bad.parent.mkdir()
        with tarfile.open(bad, "w") as archive:
            archive.add(home / "source", "../outside")
        expect(Exception, install, transfer, bad)
        bad.write_bytes(b"no archive at all")
        expect(Exception, install, transfer, bad)


def install(transfer: Any, tar: Path) -> None:
    file = p2p_pb2.ArtifactManifestFile(path=str(tar), size=tar.stat().st_size)
    transfer.install(p2p_pb2.GetArtifactManifestHeaderResponse(files=[file]))


@flow
def chunks_in_threads() -> None:
    """The client's transfers of artifacts run in threads of a pool, of which each fails."""
    enable_metrics()
    made = manager()
    Agent.states = ("ERR",)
    buffer = torch.zeros(8, dtype=torch.uint8)
    slots = [artifact_transfer._TargetBufferSlot(buffer, None) for _ in range(3)]
    prepared = [p2p_pb2.PrepareArtifactChunkResponse() for _ in slots]
    for each in prepared:
        each.source.length = 8
    with metrics.time_load("sglang", "org/model", "main"):
        expect(
            Exception,
            artifact_transfer._transfer_prepared_batch,
            made, "remote", [], prepared, slots, 60.0,
        )  # fmt: skip


@flow
def engines_logging() -> None:
    """The engine's handlers get to the client's loggers, whoever enabled metrics first."""
    import logging

    import modelexpress

    enable_metrics()
    engine = logging.getLogger("vllm")
    engine.setLevel(logging.INFO)
    engine.addHandler(logging.StreamHandler(sys.stdout))
    modelexpress.configure_vllm_logging()
    modelexpress.configure_vllm_logging()
    logging.getLogger("modelexpress.strategy_rdma").info("the engine shows this")
    load(Server())


@flow
def traced() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())
    with trace.get_tracer("engine").start_as_current_span("start"):
        load(Server(CUDA))


# --------------------------------------------------------------------------------------


def each(directory: str) -> Iterator[tuple[str, int]]:
    """Run each flow in a fork, one after the other; its name, and its exit status."""
    torch.set_num_threads(1)
    for name, function in FLOWS.items():
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            yield name, os.waitpid(pid, 0)[1]
            continue
        code = 1
        try:
            place = os.path.join(directory, name)
            os.mkdir(place)
            os.environ["MX_P2P_SOURCE_SELECTOR"] = "rendezvous_hash"  # the same order on each side
            os.environ["MX_METRICS_DIR"] = os.environ["PROMETHEUS_MULTIPROC_DIR"] = place
            time.perf_counter = itertools.count(1000.375, 0.375).__next__
            function()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it was, it is this child's
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)


if __name__ == "__main__":
    failed = [name for name, status in each(sys.argv[1]) if status]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
