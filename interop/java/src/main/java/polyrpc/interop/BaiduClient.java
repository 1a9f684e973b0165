package polyrpc.interop;

import com.baidu.brpc.RpcContext;
import com.baidu.brpc.client.BrpcProxy;
import com.baidu.brpc.client.RpcClient;
import com.baidu.brpc.client.RpcClientOptions;
import com.baidu.brpc.client.channel.ChannelType;
import com.baidu.brpc.client.channel.Endpoint;
import com.baidu.brpc.protocol.Options.CompressType;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;

/**
 * Tests a server with brpc-java's client, case by case.
 *
 * <pre>
 * BaiduClient [--auth-addr ADDR] ADDR [CASE…]
 * BaiduClient --names ADDR
 * BaiduClient --list
 * </pre>
 *
 * With {@code --names} the service is that of {@code proto/names.proto}.
 *
 * One line per case: {@code ok   NAME}, {@code skip NAME: why} or {@code FAIL NAME: why}; the exit code is 1 if
 * a case failed.
 */
public final class BaiduClient {
    /** Far above the duration of any case with a responsive server. */
    private static final int CASE_LIMIT_SECONDS = 120;

    private static final int READ_TIMEOUT_MILLIS = 30_000;

    private interface Case {
        void run() throws Exception;
    }

    /** The body of a case with the stub of a service. */
    private interface Use<S> {
        void call(S service) throws Exception;
    }

    /** Thrown by a case that needs a listener without a given address. */
    private static final class Skipped extends RuntimeException {
        Skipped(String why) {
            super(why);
        }
    }

    private final String addr;
    private final String authAddr;

    private BaiduClient(String addr, String authAddr) {
        this.addr = addr;
        this.authAddr = authAddr;
    }

    public static void main(String[] args) {
        List<String> words = new ArrayList<>(Arrays.asList(args));
        if (words.remove("--list")) {
            new BaiduClient(null, null).cases().keySet().forEach(System.out::println);
            return;
        }
        boolean isNamed = words.remove("--names");
        String authAddr = option(words, "--auth-addr");
        if (words.isEmpty()) {
            System.err.println("usage: BaiduClient [--auth-addr ADDR] ADDR [CASE…]\n       BaiduClient --list");
            System.exit(2);
        }
        Echo.compileForThisJdk();
        BaiduClient client = new BaiduClient(words.remove(0), authAddr);
        // brpc-java leaves threads behind that would keep the process alive.
        System.exit((isNamed ? client.runNamed() : client.runAll(words)) ? 0 : 1);
    }

    private static String option(List<String> words, String name) {
        int at = words.indexOf(name);
        if (at < 0 || at + 1 >= words.size()) {
            return null;
        }
        words.remove(at);
        return words.remove(at);
    }

    private Map<String, Case> cases() {
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("echo", () -> echoes("hello world"));
        cases.put("echo_empty", () -> echoes(""));
        cases.put("echo_unicode", () -> echoes("héllo 世界 🦀"));
        cases.put("echo_1mib", () -> echoes("x".repeat(1 << 20)));
        cases.put("short_name", this::shortName);
        cases.put("attachment", () -> attachment(CompressType.COMPRESS_TYPE_NONE, "with attachment", noise(8)));
        cases.put("attachment_1mib", () -> attachment(CompressType.COMPRESS_TYPE_NONE, "large", noise(1 << 20)));
        cases.put("attachment_snappy", () -> attachment(CompressType.COMPRESS_TYPE_SNAPPY, "snappy", noise(1000)));
        cases.put("gzip", () -> compressed(CompressType.COMPRESS_TYPE_GZIP, "gzip"));
        cases.put("zlib", () -> compressed(CompressType.COMPRESS_TYPE_ZLIB, "zlib"));
        cases.put("snappy", () -> compressed(CompressType.COMPRESS_TYPE_SNAPPY, "snappy"));
        cases.put("log_id", this::logId);
        cases.put("two_calls", this::twoCalls);
        cases.put("unknown_method", () -> fails(Echo.UnknownMethod.class, 1002, Echo.UnknownMethod::echo, "hi"));
        cases.put("unknown_service", () -> fails(Echo.UnknownService.class, 1002, Echo.UnknownService::echo, "hi"));
        cases.put("unknown_short_name",
                () -> fails(Echo.UnknownShortName.class, 1001, Echo.UnknownShortName::echo, "hi"));
        cases.put("fail_generic", () -> fails(Echo.Service.class, 2001, Echo.Service::echo, "fail-generic"));
        cases.put("fail_code", () -> fails(Echo.Service.class, 54321, Echo.Service::echo, "fail-code"));
        cases.put("call_after_failure", this::callAfterFailure);
        cases.put("auth_ok", () -> authenticated("secret-token", () -> echoesAt(needsAuthAddr(), "hi")));
        cases.put("auth_refused", () -> authenticated("wrong", this::refused));
        cases.put("concurrent_100", () -> concurrent(ChannelType.SINGLE_CONNECTION));
        cases.put("concurrent_100_pooled", () -> concurrent(ChannelType.POOLED_CONNECTION));
        return cases;
    }

    private boolean runNamed() {
        boolean echoes = report("echo", () -> callNamed("héllo", texts -> equal("texts", texts, List.of("héllo", "héllo"))));
        return report("failure", () -> {
            String text = failureOf(() -> callNamed("fail", texts -> { })).getMessage();
            if (!text.contains("failed as asked")) {
                throw new AssertionError("another failure: " + brief(text));
            }
        }) && echoes;
    }

    private void callNamed(String text, Use<List<String>> use) throws Exception {
        call(Echo.NamedService.class, CompressType.COMPRESS_TYPE_NONE,
                service -> use.call(service.echo(new Echo.Text(text, 2)).texts));
    }

    private boolean runAll(List<String> names) {
        Map<String, Case> cases = cases();
        for (String name : names) {
            if (!cases.containsKey(name)) {
                System.err.println("BaiduClient: no case named " + name);
                System.exit(2);
            }
        }
        boolean passed = true;
        for (Map.Entry<String, Case> each : cases.entrySet()) {
            if (names.isEmpty() || names.contains(each.getKey())) {
                passed &= report(each.getKey(), each.getValue());
            }
        }
        return passed;
    }

    private static boolean report(String name, Case run) {
        try {
            limited(run);
            System.out.println("ok   " + name);
            return true;
        } catch (Skipped skipped) {
            System.out.println("skip " + name + ": " + skipped.getMessage());
            return true;
        } catch (Throwable failure) {
            System.out.println("FAIL " + name + ": " + failure);
            return false;
        }
    }

    /** Runs a case in a separate thread, so that a silent server does not stop the others. */
    private static void limited(Case run) throws Throwable {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try {
            Callable<Void> body = () -> {
                run.run();
                return null;
            };
            thread.submit(body).get(CASE_LIMIT_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            throw failed.getCause();
        } finally {
            thread.shutdownNow();
        }
    }

    // The cases.

    private void echoes(String text) throws Exception {
        echoesAt(addr, text);
    }

    private static void echoesAt(String addr, String text) throws Exception {
        callAt(addr, Echo.Service.class, CompressType.COMPRESS_TYPE_NONE,
                service -> equal("message", service.echo(new Echo.Message(text)).message, text));
    }

    private void shortName() throws Exception {
        call(Echo.ShortName.class, CompressType.COMPRESS_TYPE_NONE,
                service -> equal("message", service.echo(new Echo.Message("hi")).message, "hi"));
    }

    private void attachment(CompressType compression, String text, byte[] bytes) throws Exception {
        call(Echo.Service.class, compression, service -> {
            RpcContext.getContext().setRequestBinaryAttachment(bytes);
            equal("message", service.echo(new Echo.Message(text)).message, text);
            ByteBuf answered = RpcContext.getContext().getResponseBinaryAttachment();
            if (answered == null) {
                throw new AssertionError("no attachment came back");
            }
            if (!Arrays.equals(ByteBufUtil.getBytes(answered), bytes)) {
                throw new AssertionError(bytes.length + " bytes of attachment came back changed");
            }
        });
    }

    /** A message that starts with the name of a compression makes our server use it for the reply. */
    private void compressed(CompressType compression, String prefix) throws Exception {
        String text = prefix + " " + "abcdefgh".repeat(1000);
        call(Echo.Service.class, compression,
                service -> equal("message", service.echo(new Echo.Message(text)).message, text));
        equal("compression of the response", Observed.responseCompression, compression.getNumber());
    }

    private void logId() throws Exception {
        call(Echo.Service.class, CompressType.COMPRESS_TYPE_NONE, service -> {
            RpcContext.getContext().setLogId(1234567890123L);
            equal("message", service.echo(new Echo.Message("hi")).message, "hi");
        });
    }

    private void twoCalls() throws Exception {
        call(Echo.Service.class, CompressType.COMPRESS_TYPE_NONE, service -> {
            equal("first", service.echo(new Echo.Message("first")).message, "first");
            equal("second", service.echo(new Echo.Message("second")).message, "second");
        });
    }

    private void callAfterFailure() throws Exception {
        call(Echo.Service.class, CompressType.COMPRESS_TYPE_NONE, service -> {
            failureOf(() -> service.echo(new Echo.Message("fail-generic")));
            equal("message", service.echo(new Echo.Message("hi")).message, "hi");
        });
    }

    private void concurrent(ChannelType connections) throws Exception {
        callAt(addr, Echo.Service.class, CompressType.COMPRESS_TYPE_NONE, connections, service -> {
            ExecutorService callers = Executors.newFixedThreadPool(100);
            try {
                List<Callable<String>> calls = new ArrayList<>();
                for (int caller = 0; caller < 100; caller++) {
                    String text = "caller " + caller;
                    calls.add(() -> service.echo(new Echo.Message(text)).message);
                }
                int caller = 0;
                for (Future<String> reply : callers.invokeAll(calls)) {
                    equal("message", reply.get(), "caller " + caller++);
                }
            } finally {
                callers.shutdownNow();
            }
        });
    }

    private <S> void fails(Class<S> service, int code, BiFunction<S, Echo.Message, Echo.Message> method, String text)
            throws Exception {
        Case run = () -> call(service, CompressType.COMPRESS_TYPE_NONE,
                stub -> method.apply(stub, new Echo.Message(text)));
        Observed.Failure failure = failureOf(run);
        equal("code", failure.code, code);
        if (failure.getMessage().isEmpty()) {
            throw new AssertionError("the failure has no text");
        }
    }

    private void refused() throws Exception {
        equal("code", failureOf(() -> echoesAt(needsAuthAddr(), "hi")).code, 1004);
    }

    private static void authenticated(String credential, Case run) throws Exception {
        Observed.credential = credential;
        try {
            run.run();
        } finally {
            Observed.credential = null;
        }
    }

    private String needsAuthAddr() {
        if (authAddr == null) {
            throw new Skipped("needs --auth-addr");
        }
        return authAddr;
    }

    // Helpers.

    private <S> void call(Class<S> service, CompressType compression, Use<S> use) throws Exception {
        callAt(addr, service, compression, use);
    }

    private static <S> void callAt(String addr, Class<S> service, CompressType compression, Use<S> use)
            throws Exception {
        callAt(addr, service, compression, ChannelType.SINGLE_CONNECTION, use);
    }

    private static <S> void callAt(String addr, Class<S> service, CompressType compression, ChannelType connections,
            Use<S> use) throws Exception {
        RpcClientOptions options = new RpcClientOptions();
        options.setProtocolType(Observed.TYPE);
        options.setChannelType(connections);
        options.setCompressType(compression);
        options.setReadTimeoutMillis(READ_TIMEOUT_MILLIS);
        options.setWriteTimeoutMillis(READ_TIMEOUT_MILLIS);
        options.setMaxTotalConnections(100);
        options.setMaxTryTimes(1);
        // A client with its own threads takes two seconds to stop them.
        options.setGlobalThreadPoolSharing(true);
        int colon = addr.lastIndexOf(':');
        Endpoint endpoint = new Endpoint(addr.substring(0, colon), Integer.parseInt(addr.substring(colon + 1)));
        RpcClient client = new RpcClient(endpoint, options);
        try {
            S stub = BrpcProxy.getProxy(client, service);
            use.call(stub);
        } finally {
            client.stop();
        }
    }

    /** The failure returned by the server; a call that succeeds or fails in another way fails the case. */
    private static Observed.Failure failureOf(Case run) throws Exception {
        try {
            run.run();
        } catch (Skipped skipped) {
            throw skipped;
        } catch (Exception thrown) {
            for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
                if (cause instanceof Observed.Failure) {
                    return (Observed.Failure) cause;
                }
            }
            throw thrown;
        }
        throw new AssertionError("the call succeeded");
    }

    private static byte[] noise(int length) {
        byte[] bytes = new byte[length];
        new Random(1).nextBytes(bytes);
        return bytes;
    }

    private static <T> void equal(String what, T got, T want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(what + ": got " + brief(got) + ", want " + brief(want));
        }
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 80 ? text : text.substring(0, 80) + "…";
    }
}
