package confide

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// ProxyFunc returns the proxy for a server's address, HOST:PORT, or nil.
type ProxyFunc func(address string) (*url.URL, error)

// The most bytes of a proxy's answer.
const proxyHeadBytesMax = 16 * 1024

// proxyFromEnvironment reads HTTPS_PROXY and NO_PROXY.
func proxyFromEnvironment(address string) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address}})
}

func proxyAddress(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(proxy.Hostname(), port)
}

// connectThrough asks an HTTP proxy for a stream to address (RFC 9110 section 9.3.6).
func connectThrough(ctx context.Context, stream net.Conn, proxy *url.URL, address string) error {
	stop := interruptAtEnd(ctx, stream)
	defer stop()
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address}
	request.Header = http.Header{}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		request.Header.Set("Proxy-Authorization", "Basic "+credentials)
	}
	if err := request.Write(stream); err != nil {
		return err
	}
	// The server sends nothing before the client's first bytes, so the reader holds nothing of TLS.
	reader := bufio.NewReader(io.LimitReader(stream, proxyHeadBytesMax))
	answer, err := http.ReadResponse(reader, request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("CONNECT was answered with %d, wanted 200", answer.StatusCode)
	}
	if reader.Buffered() > 0 {
		return errors.New("bytes came before the server had anything to answer")
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}
