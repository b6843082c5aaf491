package paging

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// PageStates stores page states that are too long for a link.
type PageStates interface {
	// PutState stores a state under a key for ttl. The binding identifies the token, to limit the storage of one client.
	PutState(ctx context.Context, binding, key string, state []byte, ttl time.Duration) error
	// GetState returns the state under a key, or [ErrNoState].
	GetState(ctx context.Context, key string) ([]byte, error)
}

// ErrNoState means that a page state has expired or was discarded.
var ErrNoState = errors.New("page state is not stored")

const (
	// maxInline is the maximum size in bytes of a state in a link. Sealing adds a third, and browsers, servers and proxies
	// accept URLs of 2,000 characters.
	maxInline = 1200
	// maxState is the maximum size in bytes of a stored state.
	maxState = 256 << 10
)

// First byte of a sealed text after any padding: whether the state or the key of a stored state follows.
const (
	inline  = 's'
	stored  = 'k'
	padding = "p"
)

// seal returns the sealed text for a state.
func (x Pages) seal(ctx context.Context, state []byte) (string, error) {
	if len(state) <= maxInline || x.States == nil {
		return x.sealPadded(ctx, string(inline)+string(state))
	}
	if len(state) > maxState {
		return "", message.TooCostly("The search needs too much state for further pages: ask for fewer types, or for fewer matches per page.")
	}
	key := rand.Text()
	sealed, err := x.Sealing.Seal(ctx, string(state), x.keyBinding(key))
	if err != nil {
		return "", err
	}
	if err := x.States.PutState(ctx, x.Binding, key, []byte(sealed), pageLifetime); err != nil {
		return "", unavailable(err)
	}
	return x.sealPadded(ctx, string(stored)+key)
}

// sealPadded seals the text of a link. With policies, all links have the same length: the length of a state depends on how
// denied matches shifted the boundaries of the FHIR server's pages.
func (x Pages) sealPadded(ctx context.Context, text string) (string, error) {
	if x.FullRequestLinks {
		text = strings.Repeat(padding, max(maxInline+1-len(text), 0)) + text
	}
	return x.Sealing.Seal(ctx, text, x.Binding)
}

// unseal returns the state of a sealed link. Links of other tokens get 404.
func (x Pages) unseal(ctx context.Context, sealed string) (string, error) {
	text, err := x.Sealing.Unseal(ctx, sealed, x.Binding, pageLifetime)
	if text = strings.TrimLeft(text, padding); err != nil || text == "" {
		return "", message.NotFound()
	}
	if text[0] == inline {
		return text[1:], nil
	}
	if x.States == nil || text[0] != stored {
		return "", message.NotFound()
	}
	key := text[1:]
	state, err := x.States.GetState(ctx, key)
	switch {
	case errors.Is(err, ErrNoState):
		return "", &guard.Error{Status: http.StatusGone, Description: "The link to this page has expired: search again.", Err: err}
	case err != nil:
		return "", unavailable(err)
	}
	if text, err = x.Sealing.Unseal(ctx, string(state), x.keyBinding(key), pageLifetime); err != nil {
		return "", message.NotFound()
	}
	return text, nil
}

// keyBinding also binds a stored state to its key.
func (x Pages) keyBinding(key string) string { return "state\x00" + key + "\x00" + x.Binding }

// retryState is the Retry-After if a state cannot be stored or read.
const retryState = 10 * time.Second

func unavailable(err error) error {
	return &guard.Error{
		Status: http.StatusServiceUnavailable, Description: "The link to the page cannot be stored or read now: try again later.",
		Wait: retryState, Err: fmt.Errorf("page state: %w", err),
	}
}

// A state is encoded as fields in a fixed order. Numbers are unsigned varints, texts are preceded by their length. Resource
// types are numbered by first occurrence. Nothing is compressed: the length of a sealed link must not depend on the similarity
// of the client's parameters to the FHIR server's.

type stateWriter struct {
	out   []byte
	types map[string]uint64
}

func (w *stateWriter) number(n int) { w.out = binary.AppendUvarint(w.out, uint64(max(n, 0))) }

func (w *stateWriter) text(s string) {
	w.number(len(s))
	w.out = append(w.out, s...)
}

// resourceType writes the number of a type, followed by its name at the first occurrence.
func (w *stateWriter) resourceType(name string) {
	n, ok := w.types[name]
	if !ok {
		n = uint64(len(w.types))
		w.types[name] = n
	}
	if w.number(int(n)); !ok {
		w.text(name)
	}
}

// Encodings of ids, as a number before them. For text, the number is textID plus the length.
const (
	uuidID   = iota // 16 bytes
	numberID        // unsigned varint
	textID
)

// maxNumber is the largest number in a state.
const maxNumber = 1 << 62

// id writes an id. Most ids are UUIDs or numbers.
func (w *stateWriter) id(id string) {
	if raw, ok := parseUUID(id); ok {
		w.out = append(append(w.out, uuidID), raw[:]...)
		return
	}
	if n, err := strconv.Atoi(id); err == nil && n >= 0 && n <= maxNumber && strconv.Itoa(n) == id {
		w.number(numberID)
		w.number(n)
		return
	}
	w.number(textID + len(id))
	w.out = append(w.out, id...)
}

// parseUUID parses a UUID in canonical form: lower case with hyphens.
func parseUUID(s string) (raw [16]byte, ok bool) {
	const hyphens = "\x08\x0d\x12\x17"
	if len(s) != 36 {
		return raw, false
	}
	n := 0
	for i := range len(s) {
		if strings.IndexByte(hyphens, byte(i)) >= 0 {
			if s[i] != '-' {
				return raw, false
			}
			continue
		}
		digit := strings.IndexByte("0123456789abcdef", s[i])
		if digit < 0 {
			return raw, false
		}
		raw[n/2] = raw[n/2]<<4 | byte(digit)
		n++
	}
	return raw, true
}

// encode returns the state for a link.
func (p Page) encode() []byte {
	w := stateWriter{types: map[string]uint64{}}
	w.text(p.Method)
	w.text(p.Path)
	w.text(p.Query)
	w.text(p.Body)
	w.number(p.Position.ReturnedCount)
	w.number(p.Position.Total)
	w.number(len(p.Position.Branches))
	for _, at := range p.Position.Branches {
		w.number(boolBit(at.Done, 1) | boolBit(at.MayBeIncomplete, 2))
		w.text(at.Path)
		w.text(at.Query)
		w.number(at.Returned)
		w.number(len(at.Pending))
		for _, reference := range at.Pending {
			resourceType, id, _ := strings.Cut(reference, "/")
			w.resourceType(resourceType)
			w.id(id)
		}
	}
	return w.out
}

func boolBit(is bool, bit int) int {
	if is {
		return bit
	}
	return 0
}

var errState = errors.New("malformed page state")

// stateReader decodes a state. After an error, it returns zero values.
type stateReader struct {
	rest  string
	types []string
	err   error
}

func (r *stateReader) take(n int) string {
	if n < 0 || n > len(r.rest) {
		r.err, r.rest = errState, ""
		return ""
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *stateReader) number() int {
	n, size := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if size <= 0 || n > maxNumber {
		r.err, r.rest = errState, ""
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

func (r *stateReader) text() string { return r.take(r.number()) }

func (r *stateReader) resourceType() string {
	n := r.number()
	switch {
	case n == len(r.types):
		r.types = append(r.types, r.text())
	case n > len(r.types):
		r.err = errState
		return ""
	}
	return r.types[n]
}

func (r *stateReader) id() string {
	switch n := r.number(); n {
	case uuidID:
		raw := r.take(16)
		if len(raw) < 16 {
			return ""
		}
		return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
	case numberID:
		return strconv.Itoa(r.number())
	default:
		return r.take(n - textID)
	}
}

// decodePage decodes the result of [Page.encode].
func decodePage(state string) (p Page, err error) {
	r := stateReader{rest: state}
	p.Method, p.Path, p.Query, p.Body = r.text(), r.text(), r.text(), r.text()
	p.Position.ReturnedCount, p.Position.Total = r.number(), r.number()
	for places := r.number(); places > 0 && r.err == nil; places-- {
		flags := r.number()
		at := BranchPosition{Done: flags&1 != 0, MayBeIncomplete: flags&2 != 0, Path: r.text(), Query: r.text(), Returned: r.number()}
		for left := r.number(); left > 0 && r.err == nil; left-- {
			at.Pending = append(at.Pending, r.resourceType()+"/"+r.id())
		}
		p.Position.Branches = append(p.Position.Branches, at)
	}
	if r.err == nil && r.rest != "" {
		r.err = errState
	}
	return p, r.err
}
