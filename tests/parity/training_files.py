"""What a training run writes, read by others: adapters and states by safetensors, logs by TensorBoard."""

import hashlib
import json

import numpy as np
import safetensors.numpy
from safetensors import safe_open

import small_models
import training
from small_models import Geometry

STEPS = 6


def check_adapter(report, file, precision, logged):
    """The hashes that other tools compute, from a file that the reference writer makes of the same tensors."""
    content = file.read_bytes()
    report.equal(f"{precision}: SHA-256 in the log", logged["sha256"], hashlib.sha256(content).hexdigest())
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    header = int.from_bytes(content[:8], "little")
    data = content[8 + header :]
    report.equal(f"{precision}: sshs_model_hash", metadata["sshs_model_hash"], hashlib.sha256(data).hexdigest())
    if precision != "fp32":
        return
    tensors = safetensors.numpy.load_file(file)
    again = safetensors.numpy.save(tensors, metadata)
    report.equal("fp32: data of the reference writer", again[8 + header :], data)
    report.equal("fp32: header of the reference writer", json.loads(again[8 : 8 + header]), json.loads(content[8 : 8 + header]))
    training_only = safetensors.numpy.save(tensors, {k: v for k, v in metadata.items() if k.startswith("ss_")})
    legacy = hashlib.sha256(training_only[0x100000:0x110000]).hexdigest()[:8]
    report.equal("fp32: sshs_legacy_hash", metadata["sshs_legacy_hash"], legacy)


def check_state(report, folder):
    state = json.loads((folder / "state.json").read_text())
    report.equal("state: step", state["step"], STEPS)
    for name, size in state["files"].items():
        report.equal(f"state: size of {name}", (folder / name).stat().st_size, size)
    adapter = safetensors.numpy.load_file(folder / "adapter.safetensors")
    slots = safetensors.numpy.load_file(folder / "optimizer.safetensors")
    owners = {name.rsplit("/", 1)[0] for name in slots}
    trained = {name for name in adapter if not name.endswith(".alpha")}
    report.equal("state: every slot belongs to a parameter, and every parameter has one", owners, trained)


def check_events(report, folder, events):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return report.skip("TensorBoard", "tensorboard is not installed")
    log = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    log.Reload()
    steps = [e for e in events if e["event"] == "step"]
    for tag, value in {"loss/current": lambda e: e["loss"], "loss/average": lambda e: e["loss_avg"], "lr/unet": lambda e: e["lr"]["unet"],
                       "grad/norm": lambda e: e["grad_norm"]}.items():  # fmt: skip
        scalars = log.Scalars(tag)
        report.equal(f"TensorBoard: steps of {tag}", [s.step for s in scalars], [e["step"] for e in steps])
        report.equal(f"TensorBoard: {tag}", [s.value for s in scalars], [float(np.float32(value(e))) for e in steps])
    images = log.Images("sample/0")
    report.equal("TensorBoard: steps of images", [i.step for i in images], [e["step"] for e in events if e["event"] == "sample"])
    report.equal("TensorBoard: sizes of images", {(i.width, i.height) for i in images}, {(64, 64)})
    report.equal("TensorBoard: images are PNG", {i.encoded_image_string[:4] for i in images}, {b"\x89PNG"})
    config = log.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    report.check("TensorBoard: options as text", "|network_dim|4|" in config, config)
    return None


def run(report, program, scratch):
    if not report.wants("training files"):
        return
    with report.area("training files"):
        geometry = Geometry("files", heads=2, double_blocks=1, single_blocks=1, text_length=24, distilled=False)
        model = small_models.write_model(geometry, scratch / "files-model", seed=22)
        data = training.write_dataset(scratch / "files-data")
        (scratch / "prompts.txt").write_text("a fox --w 64 --h 64 --s 2 --d 1\n")
        for precision in ("fp32", "bf16", "fp16"):
            out = scratch / f"files-{precision}"
            program.run(
                "train", "-m", model, "--dataset_config", data, "--network_dim", 4, "--network_alpha", 4, "--learning_rate", 1e-3,
                "--timestep_sampling", "flux2_shift", "--max_train_steps", STEPS, "--seed", 1, "--output_dir", out,
                "--output_name", "x", "--save_precision", precision, "--save_state_on_train_end", "--logging_dir", out / "logs",
                "--log_config", "--sample_prompts", scratch / "prompts.txt", "--sample_every_n_steps", 3,
                "--profile", "exact", "--device", "cpu", "--quiet",
            )  # fmt: skip
            events = [json.loads(line) for line in (out / "x.jsonl").read_text().splitlines()]
            check_adapter(report, out / "x.safetensors", precision, [e for e in events if e["event"] == "checkpoint"][-1])
        check_state(report, out / "x-state")
        check_events(report, next((out / "logs").glob("*/*")), events)
