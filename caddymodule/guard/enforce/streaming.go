package enforce

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/address"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// forward forwards the client's request to the next handler without judging it. It rewrites only links and addresses in the
// response. If rewriting fails before the first byte is sent, the error replaces the response. After that, the connection is
// aborted, so that clients do not mistake a partial response for a complete one.
func (x *exchange) forward(w http.ResponseWriter, c message.Call, i interaction.Interaction) (err error) {
	p := &forwardingWriter{client: w, exchange: x, interaction: i, isBinaryContent: acceptsBinaryContent(x.request.Header, i), header: w.Header().Clone(), requestPath: strings.TrimPrefix(strings.TrimPrefix(x.request.URL.Path, x.enforcer.Base), "/")}
	p.responseRewriter, p.trustsFullURLs = x.newRewriter(), returnsStoredResources(i)
	if dispatchTable[i.Kind].handlePage != nil {
		p.sealLinks = func(links message.Links) (message.Links, error) {
			p.learnBase(address.BaseOf(links.Find("self"), p.requestPath), p.trustsFullURLs)
			return x.pages.SealLinks(x.request.Context(), c, p.requestPath, links)
		}
	}
	if err := p.prepare(i); err != nil {
		return err
	}
	defer p.release()
	defer func() {
		if message.RepanicUnlessAborted(recover(), p.err); p.err != nil {
			err = p.err
		}
		if x.isAborted = err != nil && p.headerSent; x.isAborted && !p.isClientGone {
			x.enforcer.logger().Error("incomplete response aborted", "path", x.request.URL.Path, "error", err)
		}
	}()
	if err := x.server.Next.ServeHTTP(p, x.request); err != nil {
		return err
	}
	return p.finish()
}

var errNotRewritable = errors.New("response format cannot be rewritten: only FHIR JSON and XML are supported")

// prepare changes the request so that its response can be rewritten: it requests JSON or XML, uncompressed and without ranges.
// The content of a Binary and the result of an operation may have any format.
func (p *forwardingWriter) prepare(i interaction.Interaction) error {
	header := p.exchange.request.Header
	if i.IsAsync {
		removeRespondAsync(header)
	}
	if p.isBinaryContent {
		return nil
	}
	header["Accept-Encoding"] = []string{"identity"}
	header.Del("Range")
	header.Del("If-Range")
	if i.Kind == interaction.Operation {
		return nil
	}
	format, accept := message.FormatParameter(i.Parameters), message.RewritableTypes(header["Accept"])
	if format != "" && !message.IsRewritable(format) || format == "" && len(accept) == 0 && len(message.ParseAccept(header)) > 0 {
		return message.NotAcceptable(errNotRewritable, "Responses are only available as FHIR JSON or XML: request application/fhir+json.")
	}
	if header.Del("Accept"); len(accept) > 0 {
		header["Accept"] = []string{strings.Join(accept, ", ")}
	}
	return nil
}

// forwardingWriter forwards a response to the client. It buffers the beginning, so that an early failure can still become an
// error response.
type forwardingWriter struct {
	responseRewriter
	client          http.ResponseWriter
	exchange        *exchange
	interaction     interaction.Interaction
	requestPath     string      // path below the FHIR base
	isBinaryContent bool        // the response is the content of a Binary, which is not rewritten
	isLocalResponse bool        // the next header belongs to a response of this process: see [forwardingWriter.BeginLocalResponse]
	header          http.Header // response header until it is sent
	status          int         // response status; 0 before WriteHeader
	isRewritable    bool        // the body is FHIR JSON or XML
	headerSent      bool        // the header has been sent
	buffered        *bytes.Buffer
	rewritten       *bytes.Buffer // buffer for rewritten pieces; nil before the first
	err             error

	isClientGone bool // writing to the client has failed
}

// maxBuffered is the number of bytes at the beginning of a response that are buffered. Most FHIR servers send links first.
const maxBuffered = 1 << 20

// Header implements http.ResponseWriter. Values set after the header was sent, such as trailers, are dropped.
func (p *forwardingWriter) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *forwardingWriter) WriteHeader(status int) {
	if p.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	p.status = status
	if p.isLocalResponse {
		p.sendHeader()
		return
	}
	p.rewriteHeaders(p.header, p.requestPath)
	p.format = message.FormatOfMediaType(p.header.Get("Content-Type"))
	p.isBinaryContent = (p.isBinaryContent || readsBinary(p.interaction) && !strings.Contains(mediaType(p.header.Get("Content-Type")), "fhir")) && status < http.StatusBadRequest
	p.isRewritable = !p.isBinaryContent && p.format != message.NoFormat
	isHead := p.exchange.request.Method == http.MethodHead
	if p.isRewritable {
		if status == http.StatusPartialContent {
			p.err = message.NewRewriteError(fmt.Errorf("%w: partial content (status 206) cannot be rewritten", errNotRewritable))
			return
		}
		message.DropBodyHeaders(p.header)
		if p.sealLinks != nil {
			p.header.Del("Etag")
		}
	}
	switch {
	case message.HasNoContent(status), isHead:
		if status == http.StatusResetContent {
			p.header.Set("Content-Length", "0")
		}
		p.sendHeader()
	case p.isRewritable:
		p.buffered = message.Buffers.Get().(*bytes.Buffer)
	}
}

// sendHeader sends the header. It replaces all headers set on the client's writer.
func (p *forwardingWriter) sendHeader() {
	to := p.client.Header()
	clear(to)
	maps.Copy(to, p.header)
	p.headerSent = true
	p.client.WriteHeader(p.status)
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the FHIR server.
func (p *forwardingWriter) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.err == nil && len(b) > 0 {
		p.err = p.writeBody(b)
	}
	if p.err != nil {
		return 0, p.err
	}
	return len(b), nil
}

func (p *forwardingWriter) writeBody(b []byte) error {
	switch {
	case message.HasNoContent(p.status), p.exchange.request.Method == http.MethodHead:
		return nil
	case !p.isRewritable && !p.headerSent:
		if err := p.classifyContent(b); err != nil {
			return err
		}
		if p.isRewritable {
			return p.writeBody(b)
		}
		p.sendHeader()
		fallthrough
	case !p.isRewritable:
		return p.writeToClient(b)
	case p.buffered == nil:
		return p.rewritePiece(b, false)
	case p.buffered.Len()+len(b) > maxBuffered:
		return p.rewritePiece(b, false) // together with the buffered part
	}
	if err := p.exchange.server.Reserve(p.exchange.request.Context(), len(b), maxBuffered-int64(p.buffered.Len())); err != nil {
		return err
	}
	_, err := p.buffered.Write(b)
	return err
}

// nonRewritableMedia are formats of FHIR resources that cannot be rewritten.
var nonRewritableMedia = message.NewSet("text/html", "application/xhtml+xml", "text/turtle", "application/x-turtle", "application/fhir+turtle", "application/rdf+xml", "application/n-triples")

// classifyContent decides how to handle content with a Content-Type other than FHIR JSON or XML, by its first bytes. Text that
// begins like JSON is rewritten as a resource, whatever its Content-Type; other text and files pass. FHIR formats that cannot
// be rewritten are rejected. An error page of another server is replaced by an error with the same status.
func (p *forwardingWriter) classifyContent(first []byte) error {
	if p.isLocalResponse || p.isBinaryContent {
		return nil
	}
	media := mediaType(p.header.Get("Content-Type"))
	trimmed := bytes.TrimLeft(first, " \t\r\n")
	switch {
	case len(trimmed) == 0 || trimmed[0] == '{' || trimmed[0] == '[':
		p.format, p.isRewritable = message.JSON, true
		message.DropBodyHeaders(p.header)
		p.buffered = message.Buffers.Get().(*bytes.Buffer)
		return nil
	case p.status >= http.StatusBadRequest:
		return message.ServerFailure(&message.Response{Status: p.status, Header: p.header})
	case media == "", nonRewritableMedia[media], len(trimmed) > 0 && trimmed[0] == '<' && p.interaction.Kind != interaction.Operation:
		return message.NewRewriteError(fmt.Errorf("%w: Content-Type %q", errNotRewritable, media))
	}
	return nil
}

// rewritePiece rewrites and sends the buffered part followed by b.
func (p *forwardingWriter) rewritePiece(b []byte, last bool) error {
	defer p.exchange.server.Share.ShrinkTo(0)
	if p.buffered != nil {
		buffered := p.buffered
		defer message.ReleaseBuffer(buffered)
		p.buffered = nil
		_, _ = buffered.Write(b) // never fails
		b = buffered.Bytes()
	}
	if p.rewritten == nil {
		p.rewritten = message.Buffers.Get().(*bytes.Buffer)
	}
	out, err := p.appendRewritten(resetBuffer(p.rewritten, len(b)), b, last)
	switch {
	case err != nil && p.status >= http.StatusBadRequest:
		return message.ServerFailure(&message.Response{Status: p.status, Header: p.header})
	case err != nil:
		return message.NewRewriteError(err)
	}
	if !p.headerSent {
		if last {
			p.header.Set("Content-Length", strconv.Itoa(len(out)))
		}
		p.sendHeader()
	}
	return p.writeToClient(out)
}

func (p *forwardingWriter) writeToClient(b []byte) error {
	_, err := p.client.Write(b)
	p.isClientGone = err != nil
	return err
}

// finish sends the rest of the response.
func (p *forwardingWriter) finish() error {
	switch {
	case p.err != nil:
		return p.err
	case p.status == 0:
		return message.NewWithheldError(message.ErrNoResponse)
	case p.isRewritable && !message.HasNoContent(p.status) && p.exchange.request.Method != http.MethodHead:
		return p.rewritePiece(nil, true)
	case !p.headerSent:
		p.sendHeader()
	}
	return nil
}

// release returns the buffers to the pool.
func (p *forwardingWriter) release() {
	for _, b := range []**bytes.Buffer{&p.buffered, &p.rewritten, &p.scratch} {
		if *b != nil {
			message.ReleaseBuffer(*b)
			*b = nil
		}
	}
}

// FlushError flushes the part that was sent. Buffered content is not sent.
func (p *forwardingWriter) FlushError() error {
	if !p.headerSent {
		return nil
	}
	return http.NewResponseController(p.client).Flush()
}

// Unwrap returns the client's writer, for http.ResponseController.
func (p *forwardingWriter) Unwrap() http.ResponseWriter { return p.client }

// removeRespondAsync removes respond-async from the Prefer header (RFC 7240 §4.1). Only $export may create jobs, because the
// links to other jobs would not be bound to the token.
func removeRespondAsync(header http.Header) {
	var remaining []string
	for _, line := range header["Prefer"] {
		for preference := range strings.SplitSeq(line, ",") {
			if !strings.Contains(strings.ToLower(preference), "respond-async") {
				remaining = append(remaining, strings.TrimSpace(preference))
			}
		}
	}
	if header.Del("Prefer"); len(remaining) > 0 {
		header["Prefer"] = remaining
	}
}

// BeginLocalResponse marks the header that is written before end is called as that of a response that this process generated
// from definitions, which has no links to seal. It has no effect for interactions that do not request definitions.
func (p *forwardingWriter) BeginLocalResponse() (end func()) {
	p.isLocalResponse = operation.IsTerminologyOperation(p.interaction)
	return func() { p.isLocalResponse = false }
}

// responseRewriter rewrites the links and addresses in one forwarded or judged response. It learns the FHIR server's base URL
// from addresses that the FHIR server generates.
type responseRewriter struct {
	enforcer       *Enforcer
	addresses      message.Addresses
	basesKey       string             // key of the base URLs in [Enforcer.bases]
	bases          []string           // base URLs found in this response or in the responses that it is based on
	format         message.Format     // format of the body
	sealLinks      address.LinkSealer // nil: the gateway writes Bundle.link itself, or the response is not a page
	trustsFullURLs bool               // the FHIR server builds the Bundle from stored resources, so it generates fullUrl

	isStarted    bool
	linkReplacer *address.LinkReplacer
	replacer     *address.Replacer
	scratch      *bytes.Buffer // buffer for text with replaced links; nil before first use
}

func (x *exchange) newRewriter() responseRewriter {
	return responseRewriter{enforcer: x.enforcer, addresses: x.pages.Addresses, basesKey: address.BasesKey(x.request), format: message.JSON}
}

// returnsStoredResources reports whether the response to an interaction is a Bundle of resources that the FHIR server finds. In
// contrast, the result of an operation may repeat a client's input.
func returnsStoredResources(i interaction.Interaction) bool {
	return dispatchTable[i.Kind].handlePage != nil && i.Kind != interaction.Operation
}

// logger returns the enforcer's logger, or one that discards everything.
func (e *Enforcer) logger() *slog.Logger {
	if e.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return e.Logger
}

// learnBase adds a base URL of the FHIR server. If it is certain, it is also stored for other responses.
func (w *responseRewriter) learnBase(base string, isCertain bool) {
	if base == "" || base == w.addresses.URL("", "") {
		return
	}
	w.bases = append(w.bases, base)
	if isCertain {
		w.enforcer.bases.Add(w.basesKey, base)
	}
}

// rewriteHeaders replaces the addresses in response headers. It removes and logs headers with an address that clients cannot
// request.
func (w *responseRewriter) rewriteHeaders(header http.Header, requestPath string) {
	for _, name := range []string{"Location", "Content-Location"} {
		text := header.Get(name)
		if text == "" || strings.HasPrefix(text, w.addresses.URL("", "")+"/") {
			continue
		}
		w.learnBase(address.BaseOfResource(text), true)
		local, ok := w.addresses.LocalURL(text)
		if base := address.BaseOf(text, requestPath); !ok && base != "" && !strings.Contains(text, "?") {
			w.learnBase(base, true)
			local, ok = w.addresses.URL(requestPath, ""), true
		}
		if ok {
			header.Set(name, local)
			continue
		}
		header.Del(name)
		w.enforcer.logger().Warn("response header removed: address outside the FHIR base", "header", name, "host", address.HostOf(text))
	}
}

// learnFromResponse learns the FHIR server's base URL from its response to a call, before the response is judged.
func (w *responseRewriter) learnFromResponse(c message.Call, a *message.Response) {
	for _, name := range []string{"Location", "Content-Location"} {
		if text := a.Header.Get(name); text != "" {
			w.learnBase(address.BaseOfResource(text), true)
			w.learnBase(address.BaseOf(text, c.Path), true)
		}
	}
	head := a.Body[:min(len(a.Body), maxBaseSearch)]
	for _, base := range w.enforcer.bases.Get(w.basesKey) {
		if bytes.Contains(head, []byte(base)) {
			return
		}
	}
	if i, err := c.Interaction(); err == nil && dispatchTable[i.Kind].handlePage != nil {
		finder := address.LinkReplacer{Seal: func(links message.Links) (message.Links, error) {
			w.learnBase(address.BaseOf(links.Find("self"), c.Path), returnsStoredResources(i))
			return links, nil
		}}
		_, _ = finder.Append(nil, head) // malformed responses are rejected by the judge
		w.learnFromEntries(head, returnsStoredResources(i))
	} else if err == nil && i.Kind == interaction.Bundle {
		w.learnFromEntries(head, false)
	}
}

// maxBaseSearch is the number of bytes at the beginning of a response that are searched for the FHIR server's base URL.
const maxBaseSearch = 64 << 10

// learnFromEntries learns the base URL from an entry's first fullUrl. It ignores resources, which may contain any URL.
func (w *responseRewriter) learnFromEntries(text []byte, isCertain bool) {
	w.learnBase(address.BaseOfResource(address.EntryAddress(w.format, text[:min(len(text), maxBaseSearch)])), isCertain)
}

// appendRewritten appends piece to out, with links and addresses rewritten. The first piece should be as long as possible,
// because the FHIR server's base URL is learned from it.
func (w *responseRewriter) appendRewritten(out, piece []byte, last bool) (_ []byte, err error) {
	if len(piece) == 0 && !w.isStarted {
		return out, nil
	}
	if !w.isStarted && w.format == message.XML {
		if piece, err = address.ReplaceXMLLinks(piece, w.sealLinks); err != nil {
			return out, err
		}
	}
	if !w.isStarted && w.format == message.JSON {
		if err := address.CheckJSON(piece); err != nil {
			return out, err
		}
		if w.sealLinks != nil {
			w.linkReplacer = &address.LinkReplacer{Seal: w.sealLinks}
		}
	}
	if w.linkReplacer != nil {
		if w.scratch == nil {
			w.scratch = message.Buffers.Get().(*bytes.Buffer)
		}
		if piece, err = w.linkReplacer.Append(resetBuffer(w.scratch, len(piece)), piece); err != nil {
			return out, err
		}
	}
	if !w.isStarted {
		w.isStarted = true
		if w.sealLinks != nil {
			w.learnFromEntries(piece, w.trustsFullURLs)
		}
		w.replacer = address.NewReplacer(w.format, append(w.enforcer.bases.Get(w.basesKey), w.bases...), w.addresses.URL("", ""))
	}
	return w.replacer.Append(out, piece, last), nil
}

// resetBuffer returns the emptied buffer's slice, with capacity for a rewritten text of about size bytes.
func resetBuffer(b *bytes.Buffer, size int) []byte {
	b.Reset()
	b.Grow(size + size/8 + 4096)
	return b.AvailableBuffer()
}

// rewriteJudged rewrites the body of a judged response.
func (w *responseRewriter) rewriteJudged(a *message.Response) error {
	if !a.IsJSON() || len(a.Body) == 0 {
		return nil
	}
	buffer := message.Buffers.Get().(*bytes.Buffer)
	out, err := w.appendRewritten(resetBuffer(buffer, len(a.Body)), a.Body, true)
	if err != nil {
		return message.NewRewriteError(err)
	}
	_, _ = buffer.Write(out) // never fails
	if a.Buffer != nil {
		message.ReleaseBuffer(a.Buffer)
	}
	a.Body, a.Buffer = buffer.Bytes(), buffer
	return nil
}
