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

// pass forwards the client's request unmodified to the next handler, and rewrites only links and addresses in the response.
// If rewriting fails before the first byte is sent, the error replaces the response. After that, the connection is aborted,
// so that no client mistakes a partial response for a complete one.
func (x *exchange) pass(w http.ResponseWriter, c message.Call, i interaction.Interaction) (err error) {
	p := &passing{to: w, x: x, i: i, raw: takesContent(x.r.Header, i), header: w.Header().Clone(), asked: strings.TrimPrefix(strings.TrimPrefix(x.r.URL.Path, x.e.Base), "/")}
	p.rewriting, p.trusts = x.newRewriting(), findsResources(i)
	if interactions[i.Kind].page != nil {
		p.seal = func(links message.Links) (message.Links, error) {
			p.learn(address.BaseOf(links.To("self"), p.asked), p.trusts)
			return x.pages.SealLinks(x.r.Context(), c, p.asked, links)
		}
	}
	if err := p.prepare(i); err != nil {
		return err
	}
	defer p.release()
	defer func() {
		if message.RepanicUnlessAborted(recover(), p.failed); p.failed != nil {
			err = p.failed
		}
		if x.aborted = err != nil && p.sent; x.aborted && !p.isClientGone {
			x.e.logger().Error("response aborted", "path", x.r.URL.Path, "error", err)
		}
	}()
	if err := x.server.Next.ServeHTTP(p, x.r); err != nil {
		return err
	}
	return p.finish()
}

var errFormatOut = errors.New("only FHIR JSON and XML can be rewritten")

// prepare changes the request so that its response can be rewritten: JSON or XML, uncompressed, no ranges. The content of a
// Binary and the result of an operation may have any format.
func (p *passing) prepare(i interaction.Interaction) error {
	header := p.x.r.Header
	if i.Async {
		withoutAsync(header)
	}
	if p.raw {
		return nil
	}
	header["Accept-Encoding"] = []string{"identity"}
	header.Del("Range")
	header.Del("If-Range")
	if i.Kind == interaction.Operation {
		return nil
	}
	format, accept := message.FormatOf(i.Parameters), message.Rewritable(header["Accept"])
	if format != "" && !message.IsRewritable(format) || format == "" && len(accept) == 0 && len(message.ParseAccept(header)) > 0 {
		return message.NotAcceptable(errFormatOut, "Responses are FHIR JSON or XML: request application/fhir+json.")
	}
	if header.Del("Accept"); len(accept) > 0 {
		header["Accept"] = []string{strings.Join(accept, ", ")}
	}
	return nil
}

// passing is a response that is being forwarded to the client. Its beginning is buffered, so that a failure there becomes
// an error response with its own status.
type passing struct {
	rewriting
	to      http.ResponseWriter
	x       *exchange
	i       interaction.Interaction
	asked   string      // path below the FHIR base
	raw     bool        // content of a Binary, which is not rewritten
	own     bool        // the header being written is of a response of this process: see [passing.BeginLocalResponse]
	header  http.Header // until it is sent
	status  int         // 0 before WriteHeader
	rewrite bool        // the body is FHIR JSON or XML
	sent    bool        // the header was sent
	held    *bytes.Buffer
	out     *bytes.Buffer // for each rewritten piece; nil before the first
	failed  error

	isClientGone bool // writing to the client has failed
}

// holdback is the number of bytes of a response that are buffered. Most FHIR servers send links first.
const holdback = 1 << 20

// Header implements http.ResponseWriter. Values set after the header was sent, such as trailers, are dropped.
func (p *passing) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *passing) WriteHeader(status int) {
	if p.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	p.status = status
	if p.own {
		p.send()
		return
	}
	p.headers(p.header, p.asked)
	p.format = message.FormatOfMedia(p.header.Get("Content-Type"))
	p.raw = (p.raw || isBinary(p.i) && !strings.Contains(mediaOf(p.header.Get("Content-Type")), "fhir")) && status < http.StatusBadRequest
	p.rewrite = !p.raw && p.format != message.NoFormat
	isHead := p.x.r.Method == http.MethodHead
	if p.rewrite {
		if status == http.StatusPartialContent {
			p.failed = message.NotRewritten(fmt.Errorf("%w: a part of a resource (status 206) cannot be rewritten", errFormatOut))
			return
		}
		message.DropBodyHeaders(p.header)
		if p.seal != nil {
			p.header.Del("Etag")
		}
	}
	switch {
	case message.HasNoContent(status), isHead:
		if status == http.StatusResetContent {
			p.header.Set("Content-Length", "0")
		}
		p.send()
	case p.rewrite:
		p.held = message.Buffers.Get().(*bytes.Buffer)
	}
}

// send sends the header, and replaces all values set on the client's writer.
func (p *passing) send() {
	to := p.to.Header()
	clear(to)
	maps.Copy(to, p.header)
	p.sent = true
	p.to.WriteHeader(p.status)
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the FHIR server.
func (p *passing) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.failed == nil && len(b) > 0 {
		p.failed = p.write(b)
	}
	if p.failed != nil {
		return 0, p.failed
	}
	return len(b), nil
}

func (p *passing) write(b []byte) error {
	switch {
	case message.HasNoContent(p.status), p.x.r.Method == http.MethodHead:
		return nil
	case !p.rewrite && !p.sent:
		if err := p.checkMedia(b); err != nil {
			return err
		}
		if p.rewrite {
			return p.write(b)
		}
		p.send()
		fallthrough
	case !p.rewrite:
		return p.toClient(b)
	case p.held == nil:
		return p.pieces(b, false)
	case p.held.Len()+len(b) > holdback:
		return p.pieces(b, false) // together with the buffered part
	}
	if err := p.x.server.Reserve(p.x.r.Context(), len(b), holdback-int64(p.held.Len())); err != nil {
		return err
	}
	_, err := p.held.Write(b)
	return err
}

// otherMedia are formats of FHIR resources that cannot be rewritten.
var otherMedia = message.SetOf("text/html", "application/xhtml+xml", "text/turtle", "application/x-turtle", "application/fhir+turtle", "application/rdf+xml", "application/n-triples")

// checkMedia decides about content by its beginning if its Content-Type is neither FHIR JSON nor XML. Text that begins like
// JSON is rewritten as a resource, regardless of its Content-Type; other text and files pass. FHIR formats that cannot be
// rewritten are rejected. An error page of another server is replaced by an error with the same status.
func (p *passing) checkMedia(first []byte) error {
	if p.own || p.raw {
		return nil
	}
	media := mediaOf(p.header.Get("Content-Type"))
	begins := bytes.TrimLeft(first, " \t\r\n")
	switch {
	case len(begins) == 0 || begins[0] == '{' || begins[0] == '[':
		p.format, p.rewrite = message.JSON, true
		message.DropBodyHeaders(p.header)
		p.held = message.Buffers.Get().(*bytes.Buffer)
		return nil
	case p.status >= http.StatusBadRequest:
		return message.Failed(&message.Response{Status: p.status, Header: p.header})
	case media == "", otherMedia[media], len(begins) > 0 && begins[0] == '<' && p.i.Kind != interaction.Operation:
		return message.NotRewritten(fmt.Errorf("%w: Content-Type %q", errFormatOut, media))
	}
	return nil
}

// pieces rewrites and sends the buffered part, followed by a piece.
func (p *passing) pieces(b []byte, last bool) error {
	defer p.x.server.Share.ShrinkTo(0)
	if p.held != nil {
		held := p.held
		defer message.ReleaseBuffer(held)
		p.held = nil
		_, _ = held.Write(b) // never fails
		b = held.Bytes()
	}
	if p.out == nil {
		p.out = message.Buffers.Get().(*bytes.Buffer)
	}
	out, err := p.append(emptied(p.out, len(b)), b, last)
	switch {
	case err != nil && p.status >= http.StatusBadRequest:
		return message.Failed(&message.Response{Status: p.status, Header: p.header})
	case err != nil:
		return message.NotRewritten(err)
	}
	if !p.sent {
		if last {
			p.header.Set("Content-Length", strconv.Itoa(len(out)))
		}
		p.send()
	}
	return p.toClient(out)
}

func (p *passing) toClient(b []byte) error {
	_, err := p.to.Write(b)
	p.isClientGone = err != nil
	return err
}

// finish sends the rest of the response.
func (p *passing) finish() error {
	switch {
	case p.failed != nil:
		return p.failed
	case p.status == 0:
		return message.NewWithheldError(message.ErrNoAnswer)
	case p.rewrite && !message.HasNoContent(p.status) && p.x.r.Method != http.MethodHead:
		return p.pieces(nil, true)
	case !p.sent:
		p.send()
	}
	return nil
}

// release returns the buffers to their pool.
func (p *passing) release() {
	for _, b := range []**bytes.Buffer{&p.held, &p.out, &p.scratch} {
		if *b != nil {
			message.ReleaseBuffer(*b)
			*b = nil
		}
	}
}

// FlushError flushes the sent part. The buffered part is not sent.
func (p *passing) FlushError() error {
	if !p.sent {
		return nil
	}
	return http.NewResponseController(p.to).Flush()
}

// Unwrap gives http.ResponseController access to other features of the writer.
func (p *passing) Unwrap() http.ResponseWriter { return p.to }

// withoutAsync removes respond-async from the Prefer header (RFC 7240 §4.1). Only $export may create jobs, because the link
// to any other job would not be bound to the token.
func withoutAsync(header http.Header) {
	var kept []string
	for _, line := range header["Prefer"] {
		for preference := range strings.SplitSeq(line, ",") {
			if !strings.Contains(strings.ToLower(preference), "respond-async") {
				kept = append(kept, strings.TrimSpace(preference))
			}
		}
	}
	if header.Del("Prefer"); len(kept) > 0 {
		header["Prefer"] = kept
	}
}

// BeginLocalResponse marks the header written before end is called as that of a response that this process generated from
// definitions, which has no links to seal. The mark has no effect for interactions that do not request definitions.
func (p *passing) BeginLocalResponse() (end func()) {
	p.own = operation.AsksDefinitions(p.i)
	return func() { p.own = false }
}

// rewriting rewrites the links and addresses of one response, forwarded or judged. It learns the FHIR server's base URL
// from addresses that the FHIR server generates.
type rewriting struct {
	e      *Enforcer
	at     message.Addresses
	key    string            // key of the base URLs in [Enforcer.bases]
	bases  []string          // base URLs found in this response or its sources
	format message.Format    // format of the body
	seal   address.SealLinks // nil: the gateway writes Bundle.link itself, or the response is not a page
	trusts bool              // the FHIR server builds the Bundle from stored resources, so it generates fullUrl

	begun    bool
	links    *address.LinkFinder
	replacer *address.Replacer
	scratch  *bytes.Buffer // text with replaced links; nil before the first
}

func (x *exchange) newRewriting() rewriting {
	return rewriting{e: x.e, at: x.pages.Addresses, key: address.Key(x.r), format: message.JSON}
}

// findsResources reports whether the response to an interaction is a Bundle of resources that the FHIR server finds. The
// result of an operation may repeat input of a client.
func findsResources(i interaction.Interaction) bool {
	return interactions[i.Kind].page != nil && i.Kind != interaction.Operation
}

// logger returns the enforcer's logger.
func (e *Enforcer) logger() *slog.Logger {
	if e.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return e.Logger
}

// learn adds a base URL of the FHIR server. If the FHIR server certainly generated it, it is also kept for other responses.
func (w *rewriting) learn(base string, certain bool) {
	if base == "" || base == w.at.URL("", "") {
		return
	}
	w.bases = append(w.bases, base)
	if certain {
		w.e.bases.Add(w.key, base)
	}
}

// headers replaces the addresses in response headers. A header with an address that clients cannot request is removed and
// logged.
func (w *rewriting) headers(header http.Header, asked string) {
	for _, name := range []string{"Location", "Content-Location"} {
		text := header.Get(name)
		if text == "" || strings.HasPrefix(text, w.at.URL("", "")+"/") {
			continue
		}
		w.learn(address.BaseOfResource(text), true)
		local, ok := w.at.LocalURL(text)
		if base := address.BaseOf(text, asked); !ok && base != "" && !strings.Contains(text, "?") {
			w.learn(base, true)
			local, ok = w.at.URL(asked, ""), true
		}
		if ok {
			header.Set(name, local)
			continue
		}
		header.Del(name)
		w.e.logger().Warn("response header removed: not an address below the FHIR base", "header", name, "host", address.HostOf(text))
	}
}

// observe learns the FHIR server's base URL from its response to a call, before the response is judged.
func (w *rewriting) observe(c message.Call, a *message.Response) {
	for _, name := range []string{"Location", "Content-Location"} {
		if text := a.Header.Get(name); text != "" {
			w.learn(address.BaseOfResource(text), true)
			w.learn(address.BaseOf(text, c.Path), true)
		}
	}
	head := a.Body[:min(len(a.Body), observed)]
	for _, base := range w.e.bases.Of(w.key) {
		if bytes.Contains(head, []byte(base)) {
			return
		}
	}
	if i, err := c.Interaction(); err == nil && interactions[i.Kind].page != nil {
		finder := address.LinkFinder{Seal: func(links message.Links) (message.Links, error) {
			w.learn(address.BaseOf(links.To("self"), c.Path), findsResources(i))
			return links, nil
		}}
		_, _ = finder.Append(nil, head) // the judge rejects malformed responses
		w.learnFromEntries(head, findsResources(i))
	} else if err == nil && i.Kind == interaction.Bundle {
		w.learnFromEntries(head, false)
	}
}

// observed is the number of bytes of a response that are searched for the FHIR server's base URL.
const observed = 64 << 10

// learnFromEntries learns the base URL from the first fullUrl of an entry. The resources in entries may contain any URL.
func (w *rewriting) learnFromEntries(text []byte, certain bool) {
	w.learn(address.BaseOfResource(address.OfEntry(w.format, text[:min(len(text), observed)])), certain)
}

// append appends a rewritten piece of the response to out. The first piece should be as long as possible, because the FHIR
// server's base URL is learned from it.
func (w *rewriting) append(out, piece []byte, last bool) (_ []byte, err error) {
	if len(piece) == 0 && !w.begun {
		return out, nil
	}
	if !w.begun && w.format == message.XML {
		if piece, err = address.ReplaceXMLLinks(piece, w.seal); err != nil {
			return out, err
		}
	}
	if !w.begun && w.format == message.JSON {
		if err := address.CheckJSON(piece); err != nil {
			return out, err
		}
		if w.seal != nil {
			w.links = &address.LinkFinder{Seal: w.seal}
		}
	}
	if w.links != nil {
		if w.scratch == nil {
			w.scratch = message.Buffers.Get().(*bytes.Buffer)
		}
		if piece, err = w.links.Append(emptied(w.scratch, len(piece)), piece); err != nil {
			return out, err
		}
	}
	if !w.begun {
		w.begun = true
		if w.seal != nil {
			w.learnFromEntries(piece, w.trusts)
		}
		w.replacer = address.NewReplacer(w.format, append(w.e.bases.Of(w.key), w.bases...), w.at.URL("", ""))
	}
	return w.replacer.Append(out, piece, last), nil
}

// emptied returns an empty slice of a buffer with capacity for a rewritten text of about this size.
func emptied(b *bytes.Buffer, size int) []byte {
	b.Reset()
	b.Grow(size + size/8 + 4096)
	return b.AvailableBuffer()
}

// judged rewrites the body of a judged response.
func (w *rewriting) judged(a *message.Response) error {
	if !a.IsJSON() || len(a.Body) == 0 {
		return nil
	}
	buffer := message.Buffers.Get().(*bytes.Buffer)
	out, err := w.append(emptied(buffer, len(a.Body)), a.Body, true)
	if err != nil {
		return message.NotRewritten(err)
	}
	_, _ = buffer.Write(out) // never fails
	if a.Buffer != nil {
		message.ReleaseBuffer(a.Buffer)
	}
	a.Body, a.Buffer = buffer.Bytes(), buffer
	return nil
}
