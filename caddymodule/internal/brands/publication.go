package brands

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Path is where the Bundle is, below the FHIR base: beside the SMART configuration, which
// links to it.
const Path = "/.well-known/user-access-brands"

// Publication serves a Bundle. It is safe for concurrent use.
type Publication struct {
	bundle  *Bundle
	durable store.Store
	current atomic.Pointer[document]
}

// document is a Bundle as apps get it.
type document struct {
	body    []byte
	tag     string
	changed time.Time
}

// NewPublication returns the Publication of a Bundle. The store keeps since when a Bundle
// that was made here is as it is, so that neither a restart nor a second gateway changes its
// timestamp.
func NewPublication(b *Bundle, durable store.Store) *Publication {
	return &Publication{bundle: b, durable: durable}
}

// Serve answers a GET or HEAD. Its error is the store's.
func (p *Publication) Serve(w http.ResponseWriter, r *http.Request) error {
	d, err := p.document(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	w.Header().Set("Cache-Control", "public, max-age=600")
	w.Header().Set("ETag", d.tag)
	http.ServeContent(w, r, "", d.changed, bytes.NewReader(d.body))
	return nil
}

func (p *Publication) document(ctx context.Context) (*document, error) {
	if d := p.current.Load(); d != nil {
		return d, nil
	}
	d := &document{body: p.bundle.content, changed: p.bundle.timestamp}
	if p.bundle.write != nil {
		var err error
		if d.changed, err = p.since(ctx); err != nil {
			return nil, err
		}
		if d.body, err = p.bundle.write(d.changed); err != nil {
			return nil, fmt.Errorf("writing the brands: %w", err)
		}
	}
	d.tag = `W/"` + digest(d.body) + `"`
	p.current.Store(d)
	return d, nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// change is kept in the store.
type change struct {
	Digest string    `json:"digest"` // of the Bundle without times
	At     time.Time `json:"at"`
}

const (
	changeKey      = "brands"
	changeLifetime = 2 * 366 * 24 * time.Hour // without a restart
)

// since returns when the Bundle became what it is. Gateways that start at the same time
// agree on it.
func (p *Publication) since(ctx context.Context) (at time.Time, err error) {
	err = store.Alter(ctx, p.durable, changeKey, changeLifetime, func(kept []byte) ([]byte, error) {
		last := p.lastChange(kept)
		at = last.At
		return json.Marshal(last)
	})
	return at, err
}

// lastChange is what is kept, unless that is of another Bundle.
func (p *Publication) lastChange(kept []byte) change {
	now := change{digest(p.bundle.content), time.Now().Truncate(time.Second)}
	var last change
	if json.Unmarshal(kept, &last) == nil && last.Digest == now.Digest {
		return last
	}
	return now
}
