#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All tests of berth, in the builds that they need, with one count at the end.

Stages: gcc (all programs, unit tests), page (the web page in Chromium, with the programs of the first),
clang (warnings as errors), tree (layers, format, documents), ASan+UBSan (unit and system tests), TSan (the
daemon's system tests), fuzz corpora replayed, the Debian packages (built, and installed in a clean Debian).
A stage that does not build, or dies, counts as one failure. The last line is the count.

With --fuzz SECONDS: runs each fuzz target for so long instead, starting from its corpus.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = max(2, os.cpu_count() or 2)
PYTHON = '/usr/bin/python3' if os.path.exists('/usr/bin/python3') else sys.executable
# Clang is there for its warnings, which need no optimisation; the sanitizers run as fast with little of it.
BUILDS = {
    'gcc': ('build', 'gcc', ['--werror']),
    'clang': ('build-clang', 'clang', ['--werror', '--buildtype=plain']),
    'asan': ('build-asan', 'gcc', ['-Db_sanitize=address,undefined', '-Doptimization=1']),
    'tsan': ('build-tsan', 'gcc', ['-Db_sanitize=thread', '-Doptimization=1']),
    'fuzz': ('build-fuzz', 'clang', ['-Dfuzz=true', '-Db_sanitize=address,undefined', '-Db_lundef=false',
                                     '-Doptimization=1']),
}
# gcc's sanitizers confuse some of its flow warnings: errors count in the plain builds only.
SANITIZER_ENV = {
    'ASAN_OPTIONS': 'detect_leaks=1:abort_on_error=1:allocator_may_return_null=1',
    'UBSAN_OPTIONS': 'print_stacktrace=1:halt_on_error=1',
    'TSAN_OPTIONS': 'halt_on_error=0:exitcode=66:second_deadlock_stack=1:suppressions=' +
                    os.path.join(ROOT, 'tests/tsan.supp'),
}


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, passed=0, failed=0, skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped


TOTAL = Count()


# Captures of real hosts lie beside the project where it has them; tests that need them skip without.
os.environ.setdefault('BERTH_SHARED', os.path.join(os.path.dirname(ROOT), 'shared'))


def say(text):
    print(text, flush=True)


def fail(what, output=''):
    TOTAL.add(failed=1)
    say('FAILED: ' + what)
    if output:
        say('\n'.join(output.splitlines()[-60:]))


def run(command, env=None, timeout=600, cwd=ROOT):
    """Exit status and output; a time-out is status 124."""
    merged = dict(os.environ, **(env or {}))
    try:
        r = subprocess.run(command, cwd=cwd, env=merged, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=timeout, errors='replace')
        return r.returncode, r.stdout
    except subprocess.TimeoutExpired as e:
        text = e.stdout.decode(errors='replace') if isinstance(e.stdout, bytes) else (e.stdout or '')
        return 124, text + '\n(timed out)'


def build(name):
    folder, compiler, options = BUILDS[name]
    path = os.path.join(ROOT, folder)
    if not os.path.exists(os.path.join(path, 'build.ninja')):
        shutil.rmtree(path, ignore_errors=True)
        status, output = run(['meson', 'setup', path] + options, {'CC': compiler})
        if status != 0:
            fail(f'{name}: configure', output)
            return None
    elif name in ('gcc', 'clang'):
        run(['meson', 'configure', path, '-Dwerror=true'])
    status, output = run(['ninja', '-C', path])
    if status != 0:
        fail(f'{name}: build', output)
        return None
    TOTAL.add(passed=1)
    return path


def run_tap(path, binary, env):
    status, output = run([binary], env, timeout=180, cwd=path)
    passed = failed = skipped = 0
    for line in output.splitlines():
        if re.match(r'(not )?ok\b.*#\s*SKIP', line, re.I):  # cmocka 1.1.5 writes "not ok" for those
            skipped += 1
            say(f'skipped: {os.path.basename(binary)}: {line}')
        elif re.match(r'ok\b', line):
            passed += 1
        elif re.match(r'not ok\b', line):
            failed += 1
    if status != 0 and failed == 0:
        failed = 1
    if failed:
        say(f'FAILED: {os.path.basename(binary)} (status {status})')
        say('\n'.join(output.splitlines()[-40:]))
    return passed, failed, skipped


def unit_tests(name, path):
    folder = os.path.join(path, 'tests', 'unit')
    tests = sorted(f for f in os.listdir(folder) if f.startswith('test-') and os.access(os.path.join(folder, f), os.X_OK)
                   and os.path.isfile(os.path.join(folder, f)))
    env = dict(SANITIZER_ENV, CMOCKA_MESSAGE_OUTPUT='TAP', BERTH_HELPER_DIR=os.path.join(path, 'bin'),
               BERTH_BIN=os.path.join(path, 'bin'))
    count = Count()
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for result in pool.map(lambda t: run_tap(path, os.path.join(folder, t), env), tests):
            count.add(*result)
    say(f'{name}: unit tests: {count.passed} passed, {count.failed} failed, {count.skipped} skipped')
    TOTAL.add(count.passed, count.failed, count.skipped)


RETRY_MAX = 3  # more than so many are no accident


def run_again(name, test, env):
    """A failed system test, alone: hundreds run beside each other on few cores, and a time limit may be
    missed for that. One that passes now is said aloud; a fault that is there fails again."""
    status, output = run([PYTHON, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '--timeout', '120', test], env,
                         timeout=180)
    say(f'{name}: FLAKY, passed alone: {test}' if status == 0 else f'{name}: failed again, alone: {test}')
    return status == 0


def sanitizer_reports(folder):
    """What sanitizers found, not what they only remark (a thread that ends while leaks are looked for)."""
    texts = [open(os.path.join(folder, f), errors='replace').read() for f in sorted(os.listdir(folder))
             if f.startswith('sanitizer.')]
    return [text for text in texts if re.search(r'ERROR: |WARNING: ThreadSanitizer|runtime error: ', text)]


def pytest(name, path, arguments, workers):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, 'report.xml')
        command = [PYTHON, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '--junitxml', report, '-n', str(workers),
                   '-r', 'sfE', '--timeout', '240'] + arguments
        env = dict(SANITIZER_ENV, BERTH_BIN=os.path.join(path, 'bin'), BERTH_HELPER_DIR=os.path.join(path, 'bin'),
                   BERTH_SANITIZER=name, PYTHONDONTWRITEBYTECODE='1')
        for key in SANITIZER_ENV:  # also what a helper or a killed daemon had to say
            env[key] += ':log_path=' + os.path.join(folder, 'sanitizer')
        status, output = run(command, env, timeout=900)
        if not os.path.exists(report):
            fail(f'{name}: pytest ended with status {status}', output)
            return
        reports = sanitizer_reports(folder)
        for text in reports[:5]:
            say(text[:6000])
        if reports:
            fail(f'{name}: {len(reports)} sanitizer reports')
        suites = ElementTree.parse(report).getroot().iter('testsuite')
        passed = failed = skipped = 0
        for s in suites:
            bad = int(s.get('failures', 0)) + int(s.get('errors', 0))
            failed += bad
            skipped += int(s.get('skipped', 0))
            passed += int(s.get('tests', 0)) - bad - int(s.get('skipped', 0))
        for line in output.splitlines():
            if line.startswith('SKIPPED'):
                say(f'{name}: {line}')
        if failed or status not in (0, 5):
            say('\n'.join(output.splitlines()[-150:]))
        if 0 < failed <= RETRY_MAX and status == 1:
            again = sorted(set(re.findall(r'^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$', output, re.M)))
            mended = sum(run_again(name, test, env) for test in again)
            if again and mended == len(again):
                passed, failed, status = passed + failed, 0, 0
        if status not in (0, 1, 5) and failed == 0:
            failed = 1
        say(f'{name}: system tests: {passed} passed, {failed} failed, {skipped} skipped')
        TOTAL.add(passed, failed, skipped)


def fuzz_targets(path):
    folder = os.path.join(path, 'tests', 'fuzz')
    return sorted(os.path.join(folder, f) for f in os.listdir(folder)
                  if f.startswith('fuzz-') and os.access(os.path.join(folder, f), os.X_OK)
                  and os.path.isfile(os.path.join(folder, f)))


def fuzz(path, seconds):
    """0 seconds: replays the corpora. Findings are kept in build-fuzz/findings/."""
    findings = os.path.join(path, 'findings')
    os.makedirs(findings, exist_ok=True)
    for target in fuzz_targets(path):
        name = os.path.basename(target)
        corpus = os.path.join(ROOT, 'tests', 'fuzz', 'corpus', name[len('fuzz-'):])
        if not os.path.isdir(corpus) or not os.listdir(corpus):
            fail(f'{name}: no corpus at {os.path.relpath(corpus, ROOT)}')
            continue
        with tempfile.TemporaryDirectory() as scratch:
            prefix = f'-artifact_prefix={findings}/{name}-'
            limits = ['-runs=0'] if seconds == 0 else [f'-max_total_time={seconds}']
            status, output = run([target, prefix, '-timeout=20', '-rss_limit_mb=2048'] + limits + [scratch, corpus],
                                 timeout=seconds + 120)
        if status != 0:
            fail(f'{name}: status {status}', output)
        else:
            runs = re.findall(r'Done (\d+) runs', output)
            say(f'fuzz: {name}: ' + (f'{runs[-1]} runs' if runs else 'corpus replayed'))
            TOTAL.add(passed=1)


def stage(name, function):
    start = time.monotonic()
    function()
    say(f'--- {name}: {time.monotonic() - start:.0f} s')


def stage_gcc():
    path = build('gcc')
    if path:
        unit_tests('gcc', path)


def stage_page():
    path = os.path.join(ROOT, 'build')
    if os.path.exists(os.path.join(path, 'bin', 'berthd')):
        pytest('page', path, ['tests/e2e'], 1)


def stage_tree():
    pytest('tree', os.path.join(ROOT, 'build'), ['tests/tree'], JOBS)


def stage_asan():
    path = build('asan')
    if path:
        unit_tests('asan', path)
        pytest('asan', path, ['tests/system', 'tests/peers'], JOBS + 2)


def stage_tsan():
    path = build('tsan')
    if path:
        pytest('tsan', path, ['tests/system', '-m', 'tsan'], JOBS)


def stage_fuzz(seconds=0):
    path = build('fuzz')
    if path:
        fuzz(path, seconds)


def stage_deb():
    if not shutil.which('dpkg-buildpackage') or not shutil.which('dh'):
        say('skipped: deb: debhelper is not installed')
        TOTAL.add(skipped=1)
        return
    folder = os.path.join(ROOT, 'build', 'deb')
    path = build('gcc')  # some tests are about its programs
    if not path:
        return
    status, output = run(['tools/make-deb.sh', folder], {'DEB_BUILD_OPTIONS': f'parallel={JOBS}'})
    if status != 0:
        fail('deb: build', output)
        return
    TOTAL.add(passed=1)
    os.environ['BERTH_DEB_DIR'] = folder
    pytest('deb', path, ['tests/deb', '--dist', 'loadfile'], JOBS)


STAGES = {'gcc': stage_gcc, 'page': stage_page, 'clang': lambda: build('clang'), 'tree': stage_tree, 'asan': stage_asan,
          'tsan': stage_tsan, 'fuzz': stage_fuzz, 'deb': stage_deb}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--fuzz', type=int, metavar='SECONDS')
    parser.add_argument('--stage', action='append', choices=list(STAGES), help='only these (default: all)')
    args = parser.parse_args()
    stages = STAGES
    if args.fuzz is not None:
        stages = {'fuzz': lambda: stage_fuzz(args.fuzz)}
    for name, function in stages.items():
        if not args.stage or name in args.stage:
            stage(name, function)
    say(f'{TOTAL.passed} passed, {TOTAL.failed} failed, {TOTAL.skipped} skipped')
    return 1 if TOTAL.failed else 0


if __name__ == '__main__':
    sys.exit(main())
