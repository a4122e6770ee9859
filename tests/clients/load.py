"""Load on a server: idle event streams, and clients that submit jobs and wait for them.
  python3 load.py URL [--streams 2000] [--clients 40] [--requests 25] [--pid PID] [--size 64] [--steps 2]
Every job must end once, with one image. Prints images per second, the 99th percentile of /healthz and the server's memory."""
import argparse
import asyncio
import json
import statistics
import time
import urllib.parse


async def exchange(host, port, text, body=b""):
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(text.encode() + body)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest


def resident(pid):
    if not pid:
        return 0
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--requests", type=int, default=25)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    parts = urllib.parse.urlparse(args.url)
    host, port = parts.hostname, parts.port
    get = lambda path: f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

    streams = []
    for _ in range(args.streams):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        await writer.drain()
        streams.append((reader, writer))

    async def drain(reader):
        while await reader.read(65536):
            pass

    drains = [asyncio.create_task(drain(reader)) for reader, _ in streams]
    idle_memory = resident(args.pid)
    ids, latencies, memory, busy = [], [], [], True

    async def probe():
        while busy:
            began = time.monotonic()
            status, _ = await exchange(host, port, get("/healthz"))
            assert status == 200, status
            latencies.append(time.monotonic() - began)
            memory.append(resident(args.pid))
            await asyncio.sleep(0.1)

    async def client(number):
        for i in range(args.requests):
            body = json.dumps({"prompt": f"a red circle {number}", "width": args.size, "height": args.size, "steps": args.steps,
                               "seed": number * 1000 + i}).encode()
            while True:
                status, answer = await exchange(host, port, "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                                                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n", body)
                if status != 429:
                    break
                await asyncio.sleep(0.2)
            assert status == 202, (status, answer)
            job = json.loads(answer)["id"]
            ids.append(job)
            while True:
                status, answer = await exchange(host, port, get(f"/api/v1/jobs/{job}"))
                assert status == 200, (status, answer)
                state = json.loads(answer)["state"]
                if state in ("completed", "failed", "cancelled"):
                    break
                await asyncio.sleep(0.2)
            assert state == "completed", answer

    began = time.monotonic()
    probing = asyncio.create_task(probe())
    await asyncio.gather(*(client(n) for n in range(args.clients)))
    seconds = time.monotonic() - began
    busy = False
    await probing
    assert len(set(ids)) == args.clients * args.requests, "a job was lost or made twice"
    for job in ids:
        _, answer = await exchange(host, port, get(f"/api/v1/jobs/{job}"))
        assert len(json.loads(answer)["images"]) == 1, answer
    closed = sum(task.done() for task in drains)
    half = memory[len(memory) // 2:]
    print(f"{len(ids)} jobs in {seconds:.1f} s: {len(ids) / seconds:.2f} images/s; {args.streams} streams, {closed} closed by the server")
    print(f"/healthz: median {1000 * statistics.median(latencies):.1f} ms, p99 {1000 * sorted(latencies)[int(0.99 * len(latencies))]:.1f} ms")
    if args.pid:
        print(f"memory: {idle_memory:.0f} MiB with the streams, second half {min(half):.0f} to {max(half):.0f} MiB "
              f"({100 * (max(half) - min(half)) / min(half):.1f} %)")
    for _, writer in streams:
        writer.close()


asyncio.run(main())
