"""Valid files for every door, as bytes or text, and functions that make files in a folder."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

from hostile_files import workbook
from nsys_files import Export, linear_steps
from test_measurement_imports import ENTRY, LOG, MLLOG, OLDER, RECORD
from timings.deepbench_cells import GEMM, PREAMBLE
from timings.test_aiconfigurator import ATTENTION, NCCL, gemm
from timings.test_aiconfigurator import GEMM as PRODUCTS
from timings.test_neusight import HEADER, additions, linears
from workbook.made_ledgers import sheet_model
from xplane_files import device, host

from fomkit.bench.journal import SCHEMA as JOURNAL
from fomkit.profiles.evidence import fit
from fomkit.profiles.machines import load_machine, save_fits
from fomkit.workbook.write import write_workbook

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
DOCS = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """Return an example file of docs/profiles.md by its title."""
    return DOCS.split(f'title="{name}"\n')[1].split("\n```")[0] + "\n"


def shipped(name: str) -> bytes:
    content = (ROOT / "model_profiles" / name).read_bytes()
    return gzip.decompress(content) if name.endswith(".gz") else content


MACHINE, MODEL, OPS, TIMINGS = map(
    block, ("example-gpu.yaml", "digits.yaml", "digits.ops.csv", "example-gpu.timings.csv")
)
PRICED = (
    "schema: fomkit/machine/1\nname: m\ndevice:\n  memory: {bandwidth: 1 GB/s, source: s}\n"
    "price: {rate: 4.56 USD/h, low: 4 USD/h, high: 500 USD/d, per: node, date: 2018-04-01, source: s}\n"
)
MATRIX = (
    "schema: fomkit/machine/1\nname: m\ndevice:\n  peak:\n"
    "    - {dtype: fp32, engine: vector, rate: 10 TFLOP/s, source: s}\n"
    "    - {dtype: bf16, engine: matrix, rate: 90 TFLOP/s, source: s}\n"
    "  memory: {bandwidth: 900 GB/s, capacity: 16 GiB, source: s}\n"
)
EPOCHS = "batch,epochs,low,high,metric,target,source\n64,9,8.5,11,loss,0.1,a\n256,12,,,loss,0.1,b\n"
CAMPAIGN = (
    "schema: fomkit/campaign/1\nname: c\nphases:\n"
    "  - {name: a, suite: lecture, line: P1, runs: 1000000, basis: estimated, source: s}\n"
    "  - {name: b, model: p1b3, mode: infer, batch: 100, samples: 1000, runs: 2, basis: assumed, source: s}\n"
)
CONV = (
    "kind,dtype,engine,pass_name,count,batch,in_channels,out_channels,height,width,kernel_h,kernel_w,stride_h,stride_w,"
    "pad_h,pad_w,heads,kv_heads,q_len,kv_len,head_dim,causal,cell,steps,input_size,hidden_size,layers,directions,yours\n"
    "conv,fp32,vector,forward,2,batch,3,64,224,224,7,7,2,2,3,3,,,,,,,,,,,,,a\n"
    "attention,fp16,matrix,backward,12,batch,,,,,,,,,,,12,12,512,512,64,1,,,,,,,=b\n"
    "rnn,fp32,vector,forward,1,batch,,,,,,,,,,,,,,,,,lstm,25,512,512,2,1,-5\n"
)
KERNELS = (
    "kind,dtype,engine,pass_name,time_s,p25_s,p75_s,repeats,harness_s,library,b,m,n,k,batch,in_channels,out_channels,"
    "height,width,kernel_h,kernel_w,stride_h,stride_w,pad_h,pad_w,numel,row,read_byte,write_byte,note\n"
    "gemm,fp32,vector,,2.1e-05,2e-05,2.3e-05,100,2e-06,cuBLAS,1,64,100,784,,,,,,,,,,,,,,,,\n"
    "conv,fp16,matrix,forward,0.0003,,,,,cuDNN,,,,,8,64,64,56,56,3,3,1,1,1,1,,,,,'-x\n"
    "softmax,fp32,vector,forward,1e-05,,,,,,,,,,,,,,,,,,,,,6400,100,25600,25600,\n"
)
BOOK = workbook({
    "Results FP32": [*PREAMBLE, *GEMM, [*GEMM[1][:8], 0.07]],
    "Specs": [["GPU Model", "X"], ["CUDA Version", "8.0"]],
})  # fmt: skip
LAYOUT = (
    "schema: fomkit/layout/1\nlayout: {bucket_byte: 25 MB, compression: 50 %, zero: 1, recompute: none}\n"
    "links:\n  - {tier: node, alpha: 5 us, bandwidth: 25 GB/s, direction: each, source: s}\n"
    "  - {tier: system, alpha: 9 us, bandwidth: 12 GB/s, direction: both, source: s}\n"
)
SPLIT = LAYOUT.replace("zero: 1", "tensor: 2, pipeline: 2, microbatch: 1, sequence: true")
RECIPE = (
    "schema: fomkit/transformer/1\nname: small\ntransformer: {blocks: 4, hidden: 64, heads: 4, vocabulary: 1000,"
    " seq: 128, experts: 4, top_k: 2}\nbatch: 8\n"
)
MEASURED = (
    "model,machine,quantity,value,low,high,repeats,batch,precision,devices,scope,basis,party,framework,"
    "framework_version,date,source,note\np1b3,titan,step_s,0.02,0.019,0.022,10,100,fp32,1,device,measured,lab,torch,"
    "2.1,2024-05-01,s,n\np1b3,titan,sample_per_s,5000,,,,100,fp32,1,device,measured,lab,torch,2.1,2024,s,n\n"
)
METERS = (
    "time,power_w\n0,100\n10,200\n20,200\n",
    "time,watts\n2024-05-01T12:00:00,100\n2024-05-01 12:00:10,200\n",
    "volt,Active Power [W],Time (s)\n230,100,0\n230,200,10\n",
)
ABOUT = {"device": "cpu", "threads": 1}
MEASURING = "\n".join([
    json.dumps({"schema": JOURNAL, "about": ABOUT}),
    json.dumps({"mark": "load", "value": 0.5}),
    json.dumps({"cells": {"kind": "gemm", "m": 8.0, "n": 8.0, "k": 8.0}, "answer": {"warm": [1e-5], "cold": []}}),
    "",
])  # fmt: skip
TFPROF = (
    "node name | requested bytes | total execution time | op occurrence (run|defined)\n"
    "MatMul    121.67MB (100.00%, 33.02%),    115.52ms (100.00%, 40.21%),   14|15\n"
    "input_type: 0:8x29532,\t1:29532x1000,\t(run*1|defined*1)\texec_time: 65310us\n"
    "input_type: 0:8x29532,\t1:8x1000,\t(run*1|defined*1)\texec_time: 42270us\n"
    "input_type: 0:8x1000,\t1:29532x1000,\t(run*0|defined*0)\texec_time: 0us\n"
    "Mul    0B (0.00%, 0.00%),    61.46ms (1.00%, 1.00%),   1|1\n"
)
RECORDS = (json.dumps(RECORD), json.dumps(OLDER))
ENTRY_AND_LOG = (json.dumps(ENTRY), LOG)
MLPERF = "\n".join(MLLOG) + "\n"
SUITES = tuple((ROOT / "model_profiles" / f"{name}.suite.yaml").read_bytes() for name in ("lecture", "kpp"))
NETWORK = tuple(path.read_bytes() for path in sorted((DATA / "network").iterdir()))
NEUSIGHT = "\n".join([HEADER, *additions()[:40], *linears()]) + "\n"
AICONFIGURATOR = (
    "\n".join([PRODUCTS, gemm("bfloat16"), gemm("fp8", 0.25), gemm("bfloat16", 0.7)]) + "\n",
    f"{ATTENTION}\nSGLang,0.5.10,Some GPU,sglang,4,1024,32,8,128,bfloat16,bfloat16,0.5\n",
    f"{NCCL}\nTRTLLM,1.0.0,Some GPU,all_gather,NCCL,half,8,1048576,0.05,2.27.3\n",
)
TRACE = (DATA / "frontends" / "linear.trace.json").read_bytes()
ONNX = (DATA / "frontends" / "perceptron.onnx").read_bytes()


@cache
def issued(folder: Path) -> bytes:
    path = folder / "issued.xlsx"
    write_workbook(sheet_model(), path)
    return path.read_bytes()


def exported(folder: Path) -> bytes:
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    export = Export(path)
    linear_steps(export)
    return export.close().read_bytes()


def fits(folder: Path) -> bytes:
    machine, path = load_machine(folder / "example-gpu.yaml"), folder / "made.fits.json"
    save_fits(fit(machine), path, machine.timings_key)
    return path.read_bytes()


def planes(_: Path) -> bytes:
    nodes = [("net/dense/MatMul", "MatMul", [(0, 5), (100, 5)]), ("net/Relu", "Relu", [(10, 2), (110, 2)])]
    return host(nodes, steps=2) + device({"sgemm": ("net/dense/MatMul:MatMul", [3, 4])})
