package write

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// put is the call that writes a version.
func (w *write) put(body []byte, etag string) message.Call {
	c := message.Call{Method: http.MethodPut, Path: w.i.Type + "/" + w.i.ID, Header: w.headers(), Body: body}
	if etag != "" {
		c.Header.Set("If-Match", etag)
	}
	return c
}

// post is the call that creates a resource.
func (w *write) post(body []byte) message.Call {
	return message.Call{Method: http.MethodPost, Path: w.i.Type, Header: w.headers(), Body: body}
}

// headers are what the FHIR server is told along with a write: of what the body is, and how much the client wants back.
func (w *write) headers() http.Header {
	header := http.Header{"Content-Type": {message.TypeJSON}}
	for _, value := range w.c.Header.Values("Prefer") {
		for _, preference := range []string{"return=minimal", "return=representation", returnOutcome} {
			if strings.Contains(value, preference) {
				header.Set("Prefer", preference)
			}
		}
	}
	for _, name := range []string{"X-Cascade", "X-Provenance"} { // newWrite has checked them
		if value := w.c.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

// forward has the FHIR server do what the client asked for, on the condition that the client set.
func (w *write) forward(ctx context.Context) (*message.Answer, error) {
	query, ifNoneExist := w.forwardedCriteria()
	c := w.c
	c.Header, c.Query = w.headers(), query
	if ifNoneExist != nil {
		c.Header["If-None-Exist"] = ifNoneExist
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if values := w.c.Header.Values(name); len(values) > 0 {
			c.Header[name] = values
		}
	}
	if media := w.c.Header.Get("Content-Type"); media != "" {
		c.Header.Set("Content-Type", media)
	}
	return w.send(ctx, c)
}

// send has the FHIR server write, and tells the client what came of it as far as it may know. In a transaction, it waits
// for the other entries.
func (w *write) send(ctx context.Context, c message.Call) (*message.Answer, error) {
	if w.in.Collect != nil {
		return w.in.Collect(w.result(), c)
	}
	a, err := w.in.Server.Ask(ctx, c)
	if err != nil {
		return nil, err
	}
	return w.result().Told(ctx, a)
}
