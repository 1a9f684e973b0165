package polyrpc.interop;

import com.baidu.bjf.remoting.protobuf.FieldType;
import com.baidu.bjf.remoting.protobuf.annotation.Protobuf;
import com.baidu.bjf.remoting.protobuf.utils.JDKCompilerHelper;
import com.baidu.bjf.remoting.protobuf.utils.compiler.JdkCompiler;
import com.baidu.brpc.protocol.BrpcMeta;
import java.util.List;

/** {@code example.EchoService} of {@code proto/echo.proto}, in the form in which jprotobuf reads it. */
public final class Echo {
    private Echo() {}

    /** jprotobuf compiles its codecs at run time as Java 6, which current compilers reject. */
    static void compileForThisJdk() {
        JDKCompilerHelper.setCompiler(new JdkCompiler(Echo.class.getClassLoader(), "11"));
    }

    /** The request and the response are the same message on the wire. */
    public static class Message {
        @Protobuf(fieldType = FieldType.STRING, order = 1, required = true)
        public String message;

        public Message() {}

        public Message(String message) {
            this.message = message;
        }
    }

    /** The existing service. */
    public interface Service {
        @BrpcMeta(serviceName = "example.EchoService", methodName = "Echo")
        Message echo(Message request);
    }

    /** The request of {@code proto/names.proto}. */
    public static class Text {
        @Protobuf(fieldType = FieldType.STRING, order = 1)
        public String text;

        @Protobuf(fieldType = FieldType.INT32, order = 2)
        public int copies;

        public Text() {}

        public Text(String text, int copies) {
            this.text = text;
            this.copies = copies;
        }
    }

    /** The response of {@code proto/names.proto}. */
    public static class Copies {
        @Protobuf(fieldType = FieldType.STRING, order = 1)
        public List<String> texts;

        public Copies() {}

        public Copies(List<String> texts) {
            this.texts = texts;
        }
    }

    /** The service of {@code proto/names.proto}. */
    public interface NamedService {
        @BrpcMeta(serviceName = "example.EchoService", methodName = "Echo")
        Copies echo(Text request);
    }

    /** The name without its package, as sent by jprotobuf's own clients. */
    public interface ShortName {
        @BrpcMeta(serviceName = "EchoService", methodName = "Echo")
        Message echo(Message request);
    }

    /** A method that no server has. */
    public interface UnknownMethod {
        @BrpcMeta(serviceName = "example.EchoService", methodName = "Missing")
        Message echo(Message request);
    }

    /** A service that no server has, by its full name. */
    public interface UnknownService {
        @BrpcMeta(serviceName = "example.GoneService", methodName = "Echo")
        Message echo(Message request);
    }

    /** A service that no server has, by its short name. */
    public interface UnknownShortName {
        @BrpcMeta(serviceName = "GoneService", methodName = "Echo")
        Message echo(Message request);
    }
}
