package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// uncompressed returns the body of a response after decoding its Content-Encoding.
func uncompressed(t *testing.T, a httpResponse) []byte {
	t.Helper()
	if a.header.Get("Content-Encoding") != "gzip" || len(a.body) == 0 {
		return a.body
	}
	reader, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		t.Errorf("labelled gzip: %v", err)
		return a.body
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		t.Errorf("labelled gzip: %v", err)
	}
	return body
}

// http1 sends a request on a new HTTP/1.1 connection and checks the framing of the response (RFC 9110 and 9112).
func (g *guarded) http1(t *testing.T, who guardHolder, line string) (httpResponse, error) {
	t.Helper()
	method, path, body, headers := parseLine(line)
	host := strings.TrimPrefix(g.gateway.issuer, "https://")
	connection, err := tls.Dial("tcp", host, &tls.Config{RootCAs: g.gateway.roots, ServerName: "localhost", NextProtos: []string{"http/1.1"}})
	if err != nil {
		return httpResponse{}, err
	}
	defer connection.Close()
	request := fmt.Sprintf("%s /%s/%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAuthorization: Bearer %s\r\n", method,
		g.server.base[strings.LastIndex(g.server.base, "/")+1:], path, host, g.token(t, who))
	if !slices.Contains(headers, "Accept") {
		headers = append(headers, "Accept", "application/fhir+json")
	}
	if body != "" {
		if !slices.Contains(headers, "Content-Type") {
			headers = append(headers, "Content-Type", "application/fhir+json")
		}
		headers = append(headers, "Content-Length", strconv.Itoa(len(body)))
	}
	for i := 0; i < len(headers); i += 2 {
		request += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	if _, err := io.WriteString(connection, request+"\r\n"+body); err != nil {
		return httpResponse{}, err
	}
	raw, err := io.ReadAll(connection)
	if err != nil {
		return httpResponse{}, err
	}
	return strictAnswer(method, raw)
}

// strictAnswer parses all bytes that a connection with one request received. A wrong Content-Length, a Content-Length together
// with Transfer-Encoding, a body that the method or status forbids, and trailing bytes are errors.
func strictAnswer(method string, raw []byte) (httpResponse, error) {
	head, rest, found := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !found {
		return httpResponse{}, fmt.Errorf("no end of the header: %.300s", raw)
	}
	lines := strings.Split(string(head), "\r\n")
	var a httpResponse
	if _, err := fmt.Sscanf(lines[0], "HTTP/1.1 %d", &a.status); err != nil {
		return httpResponse{}, err
	}
	a.header = http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		a.header.Add(name, value)
	}
	lengths, codings := a.header.Values("Content-Length"), a.header.Values("Transfer-Encoding")
	bodiless := method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified
	switch {
	case bodiless && len(rest) > 0:
		return a, fmt.Errorf("%d with a body of %d bytes", a.status, len(rest))
	case a.status == http.StatusNoContent && len(lengths)+len(codings) > 0:
		return a, fmt.Errorf("204 with %v %v", lengths, codings)
	case bodiless:
		return a, nil
	case len(lengths)+len(codings) != 1:
		return a, fmt.Errorf("%d with Content-Length %v and Transfer-Encoding %v", a.status, lengths, codings)
	case len(lengths) == 1 && lengths[0] != strconv.Itoa(len(rest)):
		return a, fmt.Errorf("%d with Content-Length %s and %d bytes", a.status, lengths[0], len(rest))
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), &http.Request{Method: method})
	if err != nil {
		return a, err
	}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return a, fmt.Errorf("%d: %w", a.status, err)
	}
	if len(codings) == 1 && !bytes.HasSuffix(rest, []byte("0\r\n\r\n")) {
		return a, fmt.Errorf("%d: bytes after the last chunk", a.status)
	}
	return a, nil
}

// checkHead repeats a GET request as a HEAD request over HTTP/1.1 and HTTP/2 and checks the framing.
func (g *guarded) checkHead(t *testing.T, who guardHolder, line string) {
	t.Helper()
	rest, isGet := strings.CutPrefix(line, "GET ")
	if !isGet || strings.Contains(line, "$export") || strings.Contains(line, "+xml") {
		return
	}
	if _, err := g.http1(t, who, "HEAD "+rest); err != nil {
		t.Errorf("HEAD %s by HTTP/1.1: %v", rest, err)
	}
	method, path, body, headers := parseLine("HEAD " + rest)
	if _, err := g.trySend(t, g.token(t, who), method, path, body, headers...); err != nil {
		t.Errorf("HEAD %s by HTTP/2: %v", rest, err)
	}
}
