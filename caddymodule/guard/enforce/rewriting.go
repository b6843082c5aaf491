package enforce

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/address"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// rewriting rewrites the links and addresses of one response, whether it passes or was judged. The FHIR server's base URL
// is learned from addresses that the server writes itself.
type rewriting struct {
	e      *Enforcer
	at     message.Addresses
	key    string            // of the bases in the enforcer
	bases  []string          // that this response, or those it was made of, have shown
	format message.Format    // of the body
	seal   address.SealLinks // nil: Bundle.link is made by the gateway, or none of a search
	trusts bool              // the FHIR server makes the Bundle of what it finds: fullUrl is its own

	begun    bool
	links    *address.LinkFinder
	replacer *address.Replacer
	scratch  *bytes.Buffer // for the text whose links were replaced; nil before
}

func (x *exchange) newRewriting() rewriting {
	return rewriting{e: x.e, at: x.pages.At, key: address.Key(x.r), format: message.JSON}
}

// findsResources reports whether the response to an interaction is a Bundle of what the FHIR server finds. What an
// operation returns may repeat what a client has sent.
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

// learn adds a base URL of the FHIR server's, which is remembered for other responses if it is certainly the server's.
func (w *rewriting) learn(base string, certain bool) {
	if base == "" || base == w.at.URL("", "") {
		return
	}
	w.bases = append(w.bases, base)
	if certain {
		w.e.bases.Add(w.key, base)
	}
}

// headers replaces the addresses in headers of the response to a call. A header with an address that clients cannot
// request is removed, which is logged.
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

// observe learns the FHIR server's base URL from its response to a call, before it is judged.
func (w *rewriting) observe(c message.Call, a *message.Answer) {
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
		_, _ = finder.Append(nil, head) // what cannot be read is rejected by the judge
		w.learnFromEntries(head, findsResources(i))
	} else if err == nil && i.Kind == interaction.Bundle {
		w.learnFromEntries(head, false)
	}
}

// observed is how much of a response is searched for the FHIR server's base URL, in bytes.
const observed = 64 << 10

// learnFromEntries learns the base URL in the first address of an entry's. Resources in entries may have anything.
func (w *rewriting) learnFromEntries(text []byte, certain bool) {
	w.learn(address.BaseOfResource(address.OfEntry(w.format, text[:min(len(text), observed)])), certain)
}

// append appends a piece of the response to out, rewritten. The first piece should be as long as possible: the FHIR
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

// emptied is a buffer without content, with room for a rewritten text of about a size.
func emptied(b *bytes.Buffer, size int) []byte {
	b.Reset()
	b.Grow(size + size/8 + 4096)
	return b.AvailableBuffer()
}

// judged rewrites the body of a response that was judged.
func (w *rewriting) judged(a *message.Answer) error {
	if !a.IsJSON() || len(a.Body) == 0 {
		return nil
	}
	buffer := message.Buffers.Get().(*bytes.Buffer)
	out, err := w.append(emptied(buffer, len(a.Body)), a.Body, true)
	if err != nil {
		return message.NotRewritten(err)
	}
	_, _ = buffer.Write(out) // it never fails
	if a.Buffer != nil {
		message.GiveBack(a.Buffer)
	}
	a.Body, a.Buffer = buffer.Bytes(), buffer
	return nil
}
