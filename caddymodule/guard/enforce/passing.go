package enforce

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// pass has the next handler answer the client's request as it is. Only addresses become ours: those of resources in
// headers, and links to pages, which are sealed.
func (x *exchange) pass(w http.ResponseWriter, c message.Call, i interaction.Interaction) error {
	r := x.r
	asked := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, x.e.Base), "/")
	p := &passingWriter{ResponseWriter: w, x: x, terminology: operation.AsksDefinitions(i)}
	if i.Async {
		withoutAsync(r.Header)
	}
	if interactions[i.Kind].page != nil && r.Method != http.MethodHead {
		r.Header.Set("Accept-Encoding", "identity")
		p.mayHold = true
	}
	if err := p.record(); err != nil {
		return err
	}
	return p.flush(r.Context(), c, asked)
}

// passingWriter has an answer name addresses as clients know them. It holds a Bundle in JSON up to the limit; anything
// else, and what is longer, passes as it comes.
type passingWriter struct {
	http.ResponseWriter
	x           *exchange
	mayHold     bool
	terminology bool // an operation on definitions is answered
	own         bool // the header that is being written is of an answer of our own: see [BeginOwn]
	began       bool
	held        *bytes.Buffer
	refused     error // to hold more, for lack of memory
	status      int
}

// WriteHeader implements http.ResponseWriter.
func (p *passingWriter) WriteHeader(status int) {
	if p.began || status < http.StatusOK {
		if status < http.StatusOK {
			p.ResponseWriter.WriteHeader(status)
		}
		return
	}
	p.began, p.status = true, status
	a := &message.Answer{Status: status, Header: p.Header()}
	p.x.pages.At.Localize(a)
	if p.mayHold && !p.own && status == http.StatusOK && a.IsJSON() && p.Header().Get("Content-Encoding") == "" {
		p.held = message.Buffers.Get().(*bytes.Buffer)
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (p *passingWriter) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.held == nil {
		return p.ResponseWriter.Write(b)
	}
	if int64(p.held.Len()+len(b)) <= p.x.server.Limits.Answer {
		return p.hold(b)
	}
	if err := p.release(p.held.Bytes()); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// hold holds a part of an answer.
func (p *passingWriter) hold(b []byte) (int, error) {
	if p.refused == nil {
		p.refused = p.x.server.Reserve(p.x.r.Context(), len(b), p.x.server.Limits.Answer-int64(p.held.Len()))
	}
	if p.refused != nil {
		return 0, p.refused
	}
	return p.held.Write(b)
}

// record has the next handler answer. If the answer is refused on its way, nothing of it is left, not even its headers.
func (p *passingWriter) record() (err error) {
	var few [8]field // has room for what there is mostly
	before := few[:0]
	for name, values := range p.Header() {
		before = append(before, field{name, slices.Clip(values)})
	}
	defer func() {
		if message.ForgiveAbort(recover(), p.refused); p.refused != nil {
			clear(p.Header())
			for _, f := range before {
				p.Header()[f.name] = f.values
			}
			err = p.refused
		}
	}()
	return p.x.server.Next.ServeHTTP(p, p.x.r)
}

// field is a header field with all its values.
type field struct {
	name   string
	values []string
}

// release writes what was held, in parts, and holds no more.
func (p *passingWriter) release(parts ...[]byte) error {
	held := p.held
	p.held = nil
	defer p.x.server.Share.ShrinkTo(0)
	defer message.GiveBack(held)
	p.ResponseWriter.WriteHeader(p.status)
	for _, part := range parts {
		if _, err := p.ResponseWriter.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// FlushError lets what passes as it comes be flushed. What is held waits.
func (p *passingWriter) FlushError() error {
	if p.held != nil {
		return nil
	}
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (p *passingWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// flush writes what was held, with its links sealed.
func (p *passingWriter) flush(ctx context.Context, c message.Call, asked string) error {
	if p.held == nil {
		return nil
	}
	body := p.held.Bytes()
	at, links, err := p.x.pages.SealLinks(ctx, c, asked, body)
	switch {
	case err != nil:
		return err
	case links == nil:
		return p.release(body)
	}
	p.Header().Set("Content-Length", strconv.Itoa(len(body)-(at.To-at.From)+len(links)))
	p.Header().Del("Etag")
	return p.release(body[:at.From], links, body[at.To:])
}

// withoutAsync takes respond-async out of the preferences (RFC 7240 §4.1). Jobs are made by $export alone: the link to
// any other could be followed by whoever has it.
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

// BeginOwn writes the header of an answer that this process has made of definitions, such as an expansion: no link in it
// needs to be sealed, so it passes as it comes. It says so of this one header alone, at the moment when it is written: what a
// FHIR server has answered, or a handler in between holds back, goes the way that answers go. Nothing that is sent can
// take its place.
func BeginOwn(w http.ResponseWriter, status int) {
	if p := passingFrom(w); p != nil {
		p.own = p.terminology
		defer func() { p.own = false }()
	}
	w.WriteHeader(status)
}

// passingFrom finds the guard's writer below those of the handlers behind it; nil if there is none.
func passingFrom(w http.ResponseWriter) *passingWriter {
	for {
		switch at := w.(type) {
		case *passingWriter:
			return at
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return nil
		}
	}
}
