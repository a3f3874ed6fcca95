package confide

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The tunnel's wire format is in docs/channel.md, "Tunnel": a WebSocket (RFC 6455) whose binary messages hold the bytes
// of the connection, in which the text `eof` ends the sender's direction.
const (
	tunnelHeadBytesMax    = 16 * 1024
	tunnelMessageBytesMax = 64 * 1024
	tunnelEnd             = "eof"
	tunnelCloseTimeout    = time.Second
	webSocketGUID         = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// The opcodes of WebSocket frames, the flag of a message's last frame and that of a masked frame.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
	flagFinal      = 0x80
	flagMasked     = 0x80
	controlMax     = 125
)

var errTunnelTruncated = errors.New("tunnel ended without its end-of-stream mark")

// parseTunnel reads the address of a tunnel.
func parseTunnel(text string) (*url.URL, error) {
	tunnel, err := url.Parse(text)
	isUsable := err == nil && (tunnel.Scheme == "ws" || tunnel.Scheme == "wss") && tunnel.Host != "" &&
		tunnel.User == nil && tunnel.RawQuery == "" && tunnel.Fragment == ""
	if !isUsable {
		return nil, &UsageError{fmt.Sprintf("tunnel address %q, wanted ws://HOST:PORT[/PATH] or wss://", text)}
	}
	if tunnel.Path == "" || tunnel.Path == "/" {
		tunnel.Path = "/tunnel"
	}
	if tunnel.Port() == "" {
		port := map[string]string{"ws": "80", "wss": "443"}[tunnel.Scheme]
		tunnel.Host = net.JoinHostPort(tunnel.Hostname(), port)
	}
	return tunnel, nil
}

// dialTunnel opens a stream to address through the tunnel.
func (c *Client) dialTunnel(ctx context.Context, address string) (net.Conn, error) {
	tunnel := c.tunnel
	stream, err := c.options.DialContext(ctx, "tcp", tunnel.Host)
	if err != nil {
		return nil, fmt.Errorf("tunnel %s: %w", tunnel.Host, err)
	}
	opened, err := openTunnel(ctx, stream, tunnel, address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tunnel %s: %w", tunnel.Host, err), stream.Close())
	}
	return opened, nil
}

// openTunnel asks the proxy at the other end of stream for a stream to address.
func openTunnel(ctx context.Context, stream net.Conn, tunnel *url.URL, address string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		stream.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { stream.SetDeadline(time.Unix(1, 0)) })
	if tunnel.Scheme == "wss" {
		outer := tls.Client(stream, &tls.Config{ServerName: tunnel.Hostname(), NextProtos: []string{"http/1.1"}})
		if err := outer.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		stream = outer
	}
	reader, err := upgrade(stream, tunnel, address)
	if err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return &tunnelConn{Conn: stream, reader: reader}, stream.SetDeadline(time.Time{})
}

// upgrade runs the handshake of the WebSocket (RFC 6455 section 4.1).
func upgrade(stream net.Conn, tunnel *url.URL, address string) (*bufio.Reader, error) {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	key := base64.StdEncoding.EncodeToString(nonce)
	target := *tunnel
	target.RawQuery = url.Values{"target": {address}}.Encode()
	request := &http.Request{Method: http.MethodGet, URL: &target, Host: tunnel.Host, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {key},
	}}
	if err := request.Write(stream); err != nil {
		return nil, err
	}
	// The limit is for the head alone.
	limited := &io.LimitedReader{R: stream, N: tunnelHeadBytesMax}
	reader := bufio.NewReader(limited)
	answer, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return nil, fmt.Errorf("answered with %d, wanted 101: %s", answer.StatusCode, said)
	}
	accepted := sha1.Sum([]byte(key + webSocketGUID))
	if answer.Header.Get("Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(accepted[:]) ||
		!strings.EqualFold(answer.Header.Get("Upgrade"), "websocket") {
		return nil, errors.New("answered with 101, but accepted no WebSocket")
	}
	limited.N = 1<<63 - 1
	return reader, nil
}

// tunnelConn is the stream that a tunnel carries.
type tunnelConn struct {
	net.Conn
	reader *bufio.Reader
	// The rest of the current frame, and whether its message is binary and goes on after it.
	rest        uint64
	isContinued bool
	hasEnded    bool
	sending     sync.Mutex
}

// Read reads bytes of the other end, up to its end-of-stream mark.
func (t *tunnelConn) Read(room []byte) (int, error) {
	for t.rest == 0 {
		if t.hasEnded {
			return 0, io.EOF
		}
		if err := t.nextFrame(); err != nil {
			return 0, err
		}
	}
	read, err := t.reader.Read(room[:min(uint64(len(room)), t.rest)])
	t.rest -= uint64(read)
	return read, toTruncation(err)
}

// nextFrame reads frames up to one with bytes of the stream, or up to the mark at its end.
func (t *tunnelConn) nextFrame() error {
	var head [2]byte
	if _, err := io.ReadFull(t.reader, head[:]); err != nil {
		return toTruncation(err)
	}
	isFinal, opcode, length := head[0]&flagFinal != 0, head[0]&0xF, uint64(head[1]&0x7F)
	if head[0]&0x70 != 0 || head[1]&flagMasked != 0 {
		return errors.New("the tunnel broke its protocol: a frame with reserved bits or a mask")
	}
	if opcode >= opClose {
		return t.readControl(opcode, isFinal, length)
	}
	if extended := map[uint64]int{126: 2, 127: 8}[length]; extended > 0 {
		var bytes [8]byte
		if _, err := io.ReadFull(t.reader, bytes[8-extended:]); err != nil {
			return toTruncation(err)
		}
		length = binary.BigEndian.Uint64(bytes[:])
	}
	switch {
	case opcode == opText && isFinal && !t.isContinued && length == uint64(len(tunnelEnd)):
		return t.readEnd()
	case length > tunnelMessageBytesMax, (opcode == opContinuation) != t.isContinued, opcode == opText, opcode > opBinary:
		return fmt.Errorf("the tunnel broke its protocol: a frame of kind %d with %d bytes", opcode, length)
	}
	t.rest, t.isContinued = length, !isFinal
	return nil
}

func (t *tunnelConn) readEnd() error {
	var mark [len(tunnelEnd)]byte
	if _, err := io.ReadFull(t.reader, mark[:]); err != nil {
		return toTruncation(err)
	}
	if string(mark[:]) != tunnelEnd {
		return errors.New("the tunnel broke its protocol: another text than its end-of-stream mark")
	}
	t.hasEnded = true
	return nil
}

func (t *tunnelConn) readControl(opcode byte, isFinal bool, length uint64) error {
	if !isFinal || length > controlMax {
		return errors.New("the tunnel broke its protocol: a control frame that is too long")
	}
	content := make([]byte, length)
	if _, err := io.ReadFull(t.reader, content); err != nil {
		return toTruncation(err)
	}
	switch opcode {
	case opClose:
		return errTunnelTruncated
	case opPing:
		return t.send(opPong, content)
	default:
		return nil
	}
}

// toTruncation names the end of the carrier: without the mark it is no end of the stream.
func toTruncation(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTunnelTruncated
	}
	return err
}

// Write sends bytes in messages of at most 64 KiB.
func (t *tunnelConn) Write(bytes []byte) (int, error) {
	sent := 0
	for sent < len(bytes) {
		piece := bytes[sent:min(len(bytes), sent+tunnelMessageBytesMax)]
		if err := t.send(opBinary, piece); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return sent, nil
}

// send sends one message in one frame, masked as frames of clients are (RFC 6455 section 5.3).
func (t *tunnelConn) send(opcode byte, content []byte) error {
	frame := []byte{flagFinal | opcode}
	switch length := len(content); {
	case length <= controlMax:
		frame = append(frame, flagMasked|byte(length))
	case length <= 0xFFFF:
		frame = binary.BigEndian.AppendUint16(append(frame, flagMasked|126), uint16(length))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, flagMasked|127), uint64(length))
	}
	var mask [4]byte
	if _, err := rand.Read(mask[:]); err != nil {
		return err
	}
	frame = append(frame, mask[:]...)
	for i, b := range content {
		frame = append(frame, b^mask[i%4])
	}
	t.sending.Lock()
	defer t.sending.Unlock()
	_, err := t.Conn.Write(frame)
	return err
}

// Close ends this direction, so that the other end sees no broken stream, and closes the connection.
func (t *tunnelConn) Close() error {
	// A write that waits ends too. A connection that is broken takes no mark.
	t.SetWriteDeadline(time.Now().Add(tunnelCloseTimeout))
	t.send(opText, []byte(tunnelEnd))
	return t.Conn.Close()
}
