package polyrpc.interop;

import com.baidu.brpc.protocol.Protocol;
import com.baidu.brpc.protocol.ProtocolFactory;
import com.baidu.brpc.protocol.Request;
import com.baidu.brpc.protocol.RpcResponse;
import com.baidu.brpc.protocol.standard.BaiduRpcDecodePacket;
import com.baidu.brpc.protocol.standard.BaiduRpcProto;
import com.baidu.brpc.protocol.standard.BaiduRpcProtocol;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.channel.ChannelHandlerContext;

/**
 * brpc-java's baidu_std with two features missing in its API: the error code and the compression of
 * a response, and the credential of a request. Every byte is still read and written by brpc-java.
 */
public final class Observed extends BaiduRpcProtocol {
    /** Above brpc-java's own protocol numbers. */
    static final int TYPE = 9001;

    /** Sent with every request; a program of this folder uses one at a time. */
    static volatile String credential;

    /** The compression of the last successful response. */
    static volatile int responseCompression;

    /** A failure with its code. */
    static final class Failure extends RuntimeException {
        final int code;

        Failure(int code, String text) {
            super(text);
            this.code = code;
        }
    }

    @Override
    public ByteBuf encodeRequest(Request request) throws Exception {
        request.setAuth(credential);
        return super.encodeRequest(request);
    }

    @Override
    public RpcResponse decodeResponse(Object packet, ChannelHandlerContext ctx) throws Exception {
        byte[] bytes = ByteBufUtil.getBytes(((BaiduRpcDecodePacket) packet).getMetaBuf());
        BaiduRpcProto.RpcMeta meta = BaiduRpcProto.RpcMeta.parseFrom(bytes);
        RpcResponse response = super.decodeResponse(packet, ctx);
        if (meta.getResponse().getErrorCode() == 0) {
            responseCompression = meta.getCompressType();
        } else {
            response.setException(new Failure(meta.getResponse().getErrorCode(), meta.getResponse().getErrorText()));
        }
        return response;
    }

    @Override
    public boolean isCoexistence() {
        return false;
    }

    /** How brpc-java finds the protocol: see META-INF/services. */
    public static final class Factory implements ProtocolFactory {
        @Override
        public Integer getProtocolType() {
            return TYPE;
        }

        @Override
        public Integer getPriority() {
            return DEFAULT_PRIORITY;
        }

        @Override
        public Protocol createProtocol(String encoding) {
            return new Observed();
        }

        @Override
        public String getProtocolName() {
            return "BAIDU_STD_OBSERVED";
        }
    }
}
