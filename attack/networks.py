#!/usr/bin/env python3
"""Two network namespaces, and the network between them: it loses, delays, reorders and duplicates packets, limits their
rate, or is cut. Written for kernels without `tc netem`; needs root and /dev/net/tun.

    attack/networks.py PROGRAM ARGUMENTS…

runs the program in the first namespace, with `--namespace NAME` of the second one as its last arguments. A line
`emulate {"loss": 0.05}` of its output changes the network, and is acknowledged by a line on its input; all other lines are
printed. The exit code is that of the program."""

import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
# Bytes that wait for their turn at a limited rate, as in a small router.
QUEUE = 64 << 10
HOSTS = ("10.77.0.1", "10.77.0.2")


def run(*command):
    subprocess.run(command, check=True)


def device(name):
    """Opens a TUN device: packets of the namespace that it is moved to are read from it, and written to it."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def namespace(name, host, other):
    tun = device(f"{name}t"[:15])
    run("ip", "netns", "add", name)
    run("ip", "link", "set", f"{name}t"[:15], "netns", name)
    run("ip", "-n", name, "link", "set", "lo", "up")
    run("ip", "-n", name, "link", "set", f"{name}t"[:15], "mtu", "1500", "up")
    run("ip", "-n", name, "address", "add", host, "peer", other, "dev", f"{name}t"[:15])
    return tun


class Direction:
    """The way of packets from one device to the other."""

    def __init__(self, source, target, dice):
        self.source, self.target, self.dice = source, target, dice
        self.due, self.count, self.free_at = [], 0, 0.0

    def receive(self, network, now):
        for _ in range(64):
            try:
                packet = os.read(self.source, 2048)
            except BlockingIOError:
                return
            self.take(packet, network, now)

    def take(self, packet, network, now):
        if network["cut"] or self.dice.random() < network["loss"]:
            return
        sent = now
        if network["rate"]:
            waiting = max(self.free_at - now, 0.0) * network["rate"] / 8
            if waiting + len(packet) > QUEUE:
                return
            sent = self.free_at = max(self.free_at, now) + len(packet) * 8 / network["rate"]
        copies = 2 if self.dice.random() < network["duplicate"] else 1
        for _ in range(copies):
            delay = network["delay"] + self.dice.uniform(-network["jitter"], network["jitter"])
            if self.dice.random() < network["reorder"]:
                delay = 0.0
            self.count += 1
            heapq.heappush(self.due, (sent + max(delay, 0.0), self.count, packet))

    def deliver(self, now):
        while self.due and self.due[0][0] <= now:
            try:
                os.write(self.target, heapq.heappop(self.due)[2])
            except BlockingIOError:
                pass  # A full device loses packets, as any network does.


PERFECT = {"loss": 0.0, "delay": 0.0, "jitter": 0.0, "reorder": 0.0, "duplicate": 0.0, "rate": 0, "cut": False}


class Emulator:
    def __init__(self, tuns, program):
        dice = random.Random(1)
        self.directions = [Direction(tuns[0], tuns[1], dice), Direction(tuns[1], tuns[0], dice)]
        self.program, self.network, self.text = program, PERFECT, b""

    def run(self):
        output = self.program.stdout.fileno()
        os.set_blocking(output, False)
        while True:
            due = [direction.due[0][0] for direction in self.directions if direction.due]
            pause = max(min(due) - time.monotonic(), 0.0) if due else 1.0
            sources = [direction.source for direction in self.directions]
            ready = select.select([*sources, output], [], [], pause)[0]
            now = time.monotonic()
            for direction in self.directions:
                if direction.source in ready:
                    direction.receive(self.network, now)
                direction.deliver(now)
            if output in ready and not self.read(output):
                return self.program.wait()

    def read(self, output):
        data = os.read(output, 1 << 16)
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            if line.startswith(b"emulate "):
                self.network = {**PERFECT, **json.loads(line.removeprefix(b"emulate "))}
                self.program.stdin.write(b"done\n")
                self.program.stdin.flush()
            else:
                print(line.decode(), flush=True)
        return bool(data)


def main():
    names = [f"rpc{os.getpid()}{side}" for side in "ab"]
    try:
        tuns = [namespace(names[0], *HOSTS), namespace(names[1], *reversed(HOSTS))]
        command = ["ip", "netns", "exec", names[0], *sys.argv[1:], "--namespace", names[1]]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as program:
            try:
                return Emulator(tuns, program).run()
            finally:
                program.kill()
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


sys.exit(main())
