package enforce

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// passes reports whether a request goes to the next handler as it is, and its answer to the client: some scope is about
// every resource that they can hold.
func (x *exchange) passes(i interaction.Interaction) bool {
	if refusePaging(i.Parameters) != nil || i.Kind == interaction.CompartmentSearch && !x.CompartmentSearch {
		return false
	}
	switch i.Kind {
	case interaction.Read, interaction.VRead, interaction.InstanceHistory:
		return x.rights.Whole(i.Type, smart.Read)
	case interaction.TypeSearch, interaction.CompartmentSearch:
		return x.rights.All()&smart.Search != 0 || x.rights.Whole(i.Type, smart.Search) && x.r.Method == http.MethodGet && x.isPlain(i)
	case interaction.SystemSearch, interaction.TypeHistory, interaction.SystemHistory:
		return x.rights.All()&smart.Search != 0
	case interaction.Delete:
		return x.rights.Whole(i.Type, smart.Delete|smart.Read) && x.writes().mayExtend(x.r.Header, i)
	case interaction.Create, interaction.Update, interaction.Patch:
		// The body may hold conditional references, which are searches of any type.
		if x.mayAct(i.Type) {
			return false
		}
		return x.rights.Whole(i.Type, i.Permission()|smart.Read) && x.rights.All()&smart.Search != 0 && x.writes().mayExtend(x.r.Header, i)
	case interaction.Operation:
		return x.operations().passesOperation(i)
	}
	return false
}

// isPlain reports whether a search is by the elements of its own type alone.
func (x *backend) isPlain(i interaction.Interaction) bool {
	return i.Type != smart.AnyType && !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		name, modifier, _ := strings.Cut(p.Name, ":")
		switch {
		case isHarmless[p.Name]:
			return false
		case p.Name == "_sort":
			return !x.isPlainOrder(i.Type, p.Value)
		}
		return telling[name] != "" || x.checkPlain(i.Type, name, modifier, p.Value) != nil
	})
}

// isHarmless are the parameters that say how an answer is to be, and tell of no other type.
var isHarmless = map[string]bool{
	"_count": true, "_summary": true, "_elements": true, "_total": true, "_format": true, "_pretty": true,
}

// pass has the next handler answer the client's request as it is. Only addresses become ours: those of resources in
// headers, and links to pages, which are sealed.
func (x *exchange) pass(w http.ResponseWriter, c call, i interaction.Interaction) error {
	asked := strings.TrimPrefix(strings.TrimPrefix(x.r.URL.Path, x.Base), "/")
	p := &passingWriter{ResponseWriter: w, x: x}
	if i.Async {
		withoutAsync(x.r.Header)
	}
	if answersBundle(i) && x.r.Method != http.MethodHead {
		x.r.Header.Set("Accept-Encoding", "identity")
		p.mayHold = true
	}
	if err := p.record(); err != nil {
		return err
	}
	return p.flush(x.r.Context(), c, asked)
}

// answersBundle reports whether an interaction answers with pages.
func answersBundle(i interaction.Interaction) bool {
	switch i.Kind {
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch, interaction.InstanceHistory,
		interaction.TypeHistory, interaction.SystemHistory, interaction.Operation:
		return true
	}
	return false
}

// passingWriter has an answer name addresses as clients know them. It holds a Bundle in JSON up to the limit; anything
// else, and what is longer, passes as it comes.
type passingWriter struct {
	http.ResponseWriter
	x       *exchange
	mayHold bool
	began   bool
	held    *bytes.Buffer
	refused error // to hold more, for lack of memory
	status  int
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
	a := &answer{status: status, header: p.Header()}
	p.x.localize(a)
	if p.mayHold && status == http.StatusOK && a.isJSON() && p.Header().Get("Content-Encoding") == "" {
		p.held = buffers.Get().(*bytes.Buffer)
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
	if int64(p.held.Len()+len(b)) <= p.x.limits.Answer {
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
		p.refused = p.x.reserve(p.x.r.Context(), len(b), p.x.limits.Answer-int64(p.held.Len()))
	}
	if p.refused != nil {
		return 0, p.refused
	}
	return p.held.Write(b)
}

// record has the next handler answer. If the answer is refused on its way, nothing of it is left, not even its headers.
func (p *passingWriter) record() (err error) {
	before := p.Header().Clone()
	defer func() {
		if forgiveAbort(recover(), p.refused); p.refused != nil {
			clear(p.Header())
			maps.Copy(p.Header(), before)
			err = p.refused
		}
	}()
	return p.x.next.ServeHTTP(p, p.x.r)
}

// release writes what was held, in parts, and holds no more.
func (p *passingWriter) release(parts ...[]byte) error {
	held := p.held
	p.held = nil
	defer p.x.share.ShrinkTo(0)
	defer giveBack(held)
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
func (p *passingWriter) flush(ctx context.Context, c call, asked string) error {
	if p.held == nil {
		return nil
	}
	body := p.held.Bytes()
	at, links, err := p.x.sealLinks(ctx, c, asked, body)
	switch {
	case err != nil:
		return err
	case links == nil:
		return p.release(body)
	}
	p.Header().Set("Content-Length", strconv.Itoa(len(body)-(at.to-at.from)+len(links)))
	p.Header().Del("Etag")
	return p.release(body[:at.from], links, body[at.to:])
}

// sealLinks are the links of a Bundle, sealed for the token, and where they stand in it. It is the answer to a call, or a
// page of it, for which the server was asked at another path. What is no Bundle, or has no link that can be read, stays
// as it is: nothing in it had to be judged.
func (x *exchange) sealLinks(ctx context.Context, c call, asked string, body []byte) (at span, sealed []byte, err error) {
	at, found := findLinks(body)
	if found == nil {
		return at, nil, nil
	}
	self := found.to("self")
	kept := links{{"self", x.url(c.path, c.query)}}
	begun := call{method: http.MethodGet, path: c.searchPath(), query: c.query} // a page of a search by POST is asked for by GET
	for _, l := range found {
		to, ok := localTo(l.URL, self, asked)
		if ok && l.Relation != "self" {
			address, err := x.pageLink(ctx, begun, to)
			if err != nil {
				return at, nil, err
			}
			kept = append(kept, link{l.Relation, address})
		}
	}
	return at, kept.append(nil), nil
}
