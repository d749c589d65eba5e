"""Names of kernels: those in two reports of real runs, and those of the wheels; below 5% are unknown."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from moedsl.compiler import load_stdlib
from moedsl.runs.profile import steps
from moedsl.runs.profile.steps import NO_CLASS, Classes

REPORTED = {
    # The report of DeepSeek-V3 on 256 GB200: kernels, operators and functions of autograd.
    "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT": "gemm",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>": "fill",
    "cudnn_generated_fort_native_sdpa_sm100_flash_bprop_f16_knob_32_128x128x128": "attention_backward",
    "cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f16_knob_7_128x128x128": "attention_forward",
    "hybrid_ep::device_sync_kernel<64>": "hybridep_sync",
    "void hybrid_ep::dispatch_kernel<hybrid_ep::dispatch_config>": "hybridep_dispatch",
    "void hybrid_ep::combine_kernel<hybrid_ep::combine_config>": "hybridep_combine",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_receive",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": "reduce",
    "_permute_kernel": "permutation",
    "_sort_chunks_by_map_kernel": "permutation",
    "void at::native::index_elementwise_kernel<128, 4>": "index",
    "void at::native::_scatter_gather_elementwise_kernel<256, 4>": "index",
    # The report of Nemotron 3 Ultra on GB200: ranges and functions of autograd.
    "MambaSplitConv1dScanCombinedFnBackward": "scan",
    "DaoAILab::_causal_conv1d_bwd_cpp": "scan",
    "_CheckpointFunctionBackward": "autograd",
    "_GroupedLinearBackward": "autograd",
    "_AllToAllBackward": "alltoall",
    "record_param_comms": "nccl_other",
    "aten::sum": "reduce",
    "aten::zeros": "fill",
    "c10d::barrier": "broadcast",
    # Not in them, but in runs of the same software.
    "void deep_ep::internode::dispatch<false, 4, true>": "deepep_dispatch",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>": "deepep_combine",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<>>>": "grouped_gemm",
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<>>>": "attention_forward",
    "void transformer_engine::dispatch::mxfp8::quantize_kernel::quantize_mxfp8_kernel<>": "cast",
    "void transformer_engine::normalization::rmsnorm_fwd_general_kernel<>": "norm",
    "_chunk_scan_fwd_kernel": "scan",
    "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 128u, 128u, 8u, 5u, (deep_gemm::GemmType)1>": "grouped_gemm",
    "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 128u, 128u, 8u, 5u, (deep_gemm::GemmType)0>": "gemm",
    "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>": "cast",
    "Memcpy DtoH (Device -> Pinned)": "host_copy",
}
RANGES = {
    (("c10d::alltoall_base_", "nccl:all_to_all"), "alltoall"),
    (("nn.Module: MoELayer_0", "_AllToAll"), "alltoall"),
    (("all_to_allv", "EXPERT_MODEL_PARALLEL_GROUP"), "alltoall"),
    (("send", "PIPELINE_MODEL_PARALLEL_GROUP"), "pipeline"),
    (("p2p.send_forward",), "pipeline"),
    (("nccl:coalesced",), "pipeline"),
    ((), "send_receive"),
}


@pytest.fixture(scope="module")
def classes() -> Classes:
    found, wrong = steps.read(load_stdlib())
    assert not wrong
    return found


def test_reported_names(classes: Classes) -> None:
    assert {name: classes.of(name, ()).name for name in REPORTED} == REPORTED


@pytest.mark.parametrize("case", sorted(RANGES))
def test_sends_and_receives_by_their_ranges(classes: Classes, case: tuple[tuple[str, ...], str]) -> None:
    around, want = case
    assert classes.of("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", around).name == want


def test_grouped_products_by_their_range(classes: Classes) -> None:
    name = "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT"
    assert classes.of(name, ("autograd::engine::evaluate_function: _GroupedLinearBackward",)).name == "grouped_gemm"


def test_a_name_alone_makes_no_kernel_an_operator(classes: Classes) -> None:
    """On the CPU it is a function of autograd, whose ranges are its own."""
    for name in ("Kernel2", "OurScan", "_OurScan"):
        assert classes.of(name, ("_Ours",)).name == NO_CLASS
        assert classes.of(name, (name,), on_cpu=True).name == "autograd"


def test_every_class_says_why_and_on_whose_word(classes: Classes) -> None:
    assert all(r.because and r.cites for r in classes.rules)


def unknown_share(classes: Classes, names: set[str]) -> float:
    """The share of the names without a class, for the message of a failure with the names."""
    unknown = sorted(n for n in names if classes.of(n, ()).name == NO_CLASS)
    if len(unknown) >= 0.05 * len(names):
        pytest.fail(f"{len(unknown)} of {len(names)} unknown: {unknown[:40]}")
    return len(unknown) / len(names)


def folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def launched(roots: list[Path]) -> set[str]:
    """The Triton kernels that some Python launches, `NAME[grid](...)`; what they only call is inlined."""
    jitted, called = set[str](), set[str]()
    for file in (f for root in roots for f in root.rglob("*.py") if "inference" not in f.parts):
        text = file.read_text(encoding="utf-8")
        if "triton" not in text and "](" not in text:
            continue
        tree = ast.parse(re.sub(r"\\(?=[^\n'\"\\abfnrtv0-9xuUN])", r"\\\\", text))
        for n in ast.walk(tree):
            if isinstance(n, ast.FunctionDef) and any("triton.jit" in ast.unparse(d) for d in n.decorator_list):
                jitted.add(n.name)
            elif isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript) and isinstance(n.func.value, ast.Name):
                called.add(n.func.value.id)
    return jitted & called


@pytest.mark.bridge
def test_triton_kernels_of_the_wheels(classes: Classes) -> None:
    fla = folder("fla")
    names = launched(
        [folder("transformer_engine"), folder("megatron") / "core", fla / "ops" / "gated_delta_rule", fla / "ops" / "common",
         fla / "modules" / "conv"]
    )  # fmt: skip
    assert len(names) > 60
    unknown_share(classes, names)


@pytest.mark.bridge
@pytest.mark.skipif(
    shutil.which("c++filt") is None and not os.environ.get("MOEDSL_REQUIRE_ALL"), reason="c++filt is not installed"
)
def test_kernels_of_pytorch(classes: Classes) -> None:
    """The names that PyTorch registers with CUDA stand in its library."""
    library = folder("torch") / "lib" / "libtorch_cuda.so"
    if not library.exists():
        pytest.skip("this PyTorch is built without CUDA")
    mangled = {
        m.decode() for m in re.findall(rb"_ZN2at6native[\w.$]{1,400}?kernel[\w.$]{4,400}(?=\0)", library.read_bytes())
    }
    said = subprocess.run(
        ["c++filt"], input="\n".join(sorted(mangled)[::50]), capture_output=True, text=True, check=True
    )
    names = {n for n in said.stdout.splitlines() if n.startswith("void at::native::")}
    assert len(names) > 200
    unknown_share(classes, names)
    found = Counter(classes.of(n, ()).name for n in names)
    assert {"elementwise", "reduce", "index", "sort"} <= {*found}
