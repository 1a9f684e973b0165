package polyrpc.interop;

import com.baidu.brpc.RpcContext;
import com.baidu.brpc.protocol.Options;
import com.baidu.brpc.server.RpcServer;
import com.baidu.brpc.server.RpcServerOptions;
import io.netty.buffer.Unpooled;
import java.util.Collections;

/**
 * The brpc-java server with {@code example.EchoService}. It prints {@code listening ADDR} once it accepts
 * connections and exits when its standard input closes. With {@code --names} the service is that of
 * {@code proto/names.proto}, which has nothing but the name in common with one of {@code polyrpc serve}.
 */
public final class BaiduServer {
    private BaiduServer() {}

    public static void main(String[] args) throws Exception {
        Echo.compileForThisJdk();
        RpcServerOptions options = new RpcServerOptions();
        options.setProtocolType(Options.ProtocolType.PROTOCOL_BAIDU_STD_VALUE);
        RpcServer server = new RpcServer("127.0.0.1", 0, options);
        server.registerService(args.length > 0 && args[0].equals("--names") ? new Named() : new EchoService());
        server.start();
        System.out.println("listening 127.0.0.1:" + server.getPort());

        while (System.in.read() >= 0) {
            // Only the end of input is expected.
        }
        System.exit(0);
    }

    /** Returns the text as often as the request says; one that starts with {@code fail} fails. */
    public static final class Named implements Echo.NamedService {
        @Override
        public Echo.Copies echo(Echo.Text request) {
            if (request.text.startsWith("fail")) {
                throw new IllegalStateException("failed as asked");
            }
            return new Echo.Copies(Collections.nCopies(request.copies, request.text));
        }
    }

    /** Echoes message and attachment; a message that starts with {@code fail} fails. */
    public static final class EchoService implements Echo.Service {
        @Override
        public Echo.Message echo(Echo.Message request) {
            if (request.message.startsWith("fail")) {
                throw new IllegalStateException("failed as asked: " + request.message);
            }
            RpcContext context = RpcContext.getContext();
            if (context.getRequestBinaryAttachment() != null) {
                context.setResponseBinaryAttachment(Unpooled.copiedBuffer(context.getRequestBinaryAttachment()));
            }
            return new Echo.Message(request.message);
        }
    }
}
