#!/usr/bin/env python3
"""Judge: replays the client bytes of the golden vectors against a live server and compares the responses by meaning."""
import argparse
import concurrent.futures as cf
import re
import sys

import fuzz
import replay
import wire


class Ctx:

    def __init__(self, a):
        self.host, self.timeout, self.pause, self.split = a.host, a.timeout, a.connect_pause, a.split
        self.ports = {'main': a.port}
        for k in PORT_KEYS:
            v = getattr(a, k + '_port')
            if v:
                self.ports[k] = v
        if 'rest_w6' in self.ports:
            self.ports.setdefault('rest_w6r', self.ports['rest_w6'])

    def port(self, key, own=False):
        p = self.ports.get(key)
        if p is None and not own:
            p = self.ports.get('main')
        if not p:
            opt = key.replace('rest_', 'rest-port-') if key.startswith('rest_') else key.replace('_', '-') + '-port'
            raise replay.Skip(f'needs --{opt if key != "main" else "port"}')
        return p


PORT_KEYS = ['auth', 'rpcx_auth', 'rpcx_http', 'rpcx_ws', 'netrpc_gob', 'netrpc_json', 'netrpc_http', 'old_msgpack',
             'old_protobuf', 'old_gencode', 'rest_w1', 'rest_w2', 'rest_w5', 'rest_w6', 'rest_w6r', 'rest_w6be']


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument('--host', default='127.0.0.1')
    ap.add_argument('--port', type=int, help='the port of the server; default of every other port but the rest_rpc and '
                    'old protobuf/gencode ones')
    ap.add_argument('--only', default=','.join(replay.GROUPS), help='groups, comma separated: ' + ','.join(replay.GROUPS))
    ap.add_argument('--match', default='', help='regular expression on the case name')
    ap.add_argument('--dir', nargs='+', default=replay.DIRS)
    ap.add_argument('--with', dest='feat', default='', help='features of the server: ' + ','.join(replay.FEATURES) + ' or all')
    ap.add_argument('--timeout', type=float, default=60.0, help='of a case, in seconds; what is right ends long before')
    ap.add_argument('--connect-pause', type=float, default=0, help='seconds between connect and the first byte (the '
                    'rest_rpc v0.01 peer loses a request that comes at once)')
    ap.add_argument('--split', type=int, default=0, help='send in pieces of this many bytes, 1 ms apart')
    ap.add_argument('--jobs', type=int, default=6)
    for k in PORT_KEYS:
        opts = ['--' + k.replace('_', '-') + '-port']
        if k.startswith('rest_'):
            opts.insert(0, '--rest-port-' + k[5:])
        ap.add_argument(*opts, dest=k + '_port', type=int)
    ap.add_argument('--fuzz', type=int, default=0, help='mutated requests per protocol')
    ap.add_argument('--fuzz-only', action='store_true')
    ap.add_argument('--pid', type=int, help='server process, for the resident memory')
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--batch', type=int, default=50)
    a = ap.parse_args()
    groups = a.only.split(',')
    for g in groups:
        if g not in replay.GROUPS:
            ap.error(f'unknown group {g}')
    feats = replay.FEATURES if a.feat == 'all' else [x for x in a.feat.split(',') if x]
    for f in feats:
        if f not in replay.FEATURES:
            ap.error(f'unknown feature {f}')
    ctx = Ctx(a)
    cases, noted = replay.collect(a.dir)
    if not cases:
        ap.error('no vectors found')
    count = {'ok': 0, 'FAIL': 0, 'skip': 0}

    def say(kind, name, why=''):
        count[kind] += 1
        print(f'{kind:4} {name}' + (f': {why}' if why else ''), flush=True)

    def run(c):
        if c.feature and c.feature not in feats:
            return 'skip', f'needs a server with {c.feature} (--with {c.feature})'
        try:
            return 'ok', c.run(ctx) or ''
        except replay.Skip as e:
            return 'skip', str(e)
        except (replay.Fail, wire.Bad) as e:
            return 'FAIL', str(e)
        except Exception as e:  # a bug of the judge or an answer that it did not foresee
            return 'FAIL', f'{type(e).__name__}: {e}'

    if not a.fuzz_only:
        todo = [c for c in cases if c.group in groups and re.search(a.match, c.name)]
        with cf.ThreadPoolExecutor(a.jobs) as ex:
            for c, (kind, why) in zip(todo, ex.map(run, todo)):
                say(kind, c.name, why)
        for name, why in noted:
            if re.search(a.match, name) and (name.split('/')[0] in groups or name.split('/')[0] in ('fb_rpc', 'json2pb')):
                say('skip', name, why)
    if a.fuzz:
        for g in groups:
            for kind, name, why in fuzz.run(g, ctx, a):
                say(kind, name, why)
    print(f"{count['ok']} passed, {count['FAIL']} failed, {count['skip']} skipped")
    return 1 if count['FAIL'] else 0


if __name__ == '__main__':
    sys.exit(main())

