"""Programs that print what they observe of clocks, timers and time zones."""

from __future__ import annotations

__all__ = ["CLOCKS"]

CLOCKS = {
    "monotonic clock": """
        began = time.monotonic()
        time.sleep(0.01)
        print(0.01 <= time.monotonic() - began < 10, time.get_clock_info("monotonic").resolution)
    """,
    "system clocks": """
        for name in ("REALTIME", "MONOTONIC", "MONOTONIC_RAW", "BOOTTIME", "TAI", "PROCESS_CPUTIME_ID", "THREAD_CPUTIME_ID"):
            clock = getattr(time, f"CLOCK_{name}")
            print(name, time.clock_gettime(clock) > 0, time.clock_getres(clock))
        print(attempt(time.clock_settime, time.CLOCK_REALTIME, time.time()))
        print(time.clock_gettime(time.CLOCK_MONOTONIC) <= time.clock_gettime(time.CLOCK_BOOTTIME))
    """,
    "processor time": """
        began = time.process_time(), time.thread_time()
        while time.process_time() - began[0] < 0.005:
            pass
        used = time.process_time()
        time.sleep(0.01)
        print(time.thread_time() > began[1], time.process_time() - used < 0.01)
    """,
    "interval timers": """
        import signal
        received = []
        before = signal.signal(signal.SIGALRM, lambda *_: received.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        while len(received) < 2:
            signal.pause()
        print(signal.setitimer(signal.ITIMER_REAL, 0)[1], signal.getitimer(signal.ITIMER_REAL))
        received = signal.signal(signal.SIGALRM, before)
    """,
    "timeouts": """
        import queue, select, subprocess, threading
        print(threading.Event().wait(0.005), threading.Lock().acquire(timeout=0.005), select.select([], [], [], 0.005))
        try:
            queue.Queue().get(timeout=0.005)
        except queue.Empty:
            print("empty")
        try:
            subprocess.run(["sleep", "60"], timeout=0.005)
        except subprocess.TimeoutExpired:
            print("expired")
    """,
    "file times": """
        with scratch():
            write("one")
            time.sleep(0.02)
            write("two")
            print(os.stat("one").st_mtime_ns < os.stat("two").st_mtime_ns, abs(os.stat("two").st_mtime - time.time()) < 5)
    """,
    "time zone": """
        print(time.tzname, time.timezone, time.daylight, time.localtime(0)[:6], os.environ.get("TZ"))
    """,
    "other time zones": """
        import datetime
        def local_times(zone):
            os.environ["TZ"] = zone
            time.tzset()
            return time.tzname, time.localtime(0)[:6], datetime.datetime.fromtimestamp(0).isoformat()
        for zone in ("UTC", "AAA-3:30", "EST5EDT,M3.2.0,M11.1.0"):
            print(in_child(lambda: local_times(zone)))
    """,
}
