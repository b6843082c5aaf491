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
	// PutState stores a state under a key for ttl. The binding identifies the token, to limit the storage per client.
	PutState(ctx context.Context, binding, key string, state []byte, ttl time.Duration) error
	// GetState returns the state stored under a key, or [ErrNoState].
	GetState(ctx context.Context, key string) ([]byte, error)
}

// ErrNoState means that a page state has expired or was discarded.
var ErrNoState = errors.New("page state not found or expired")

const (
	// maxInlineState is the maximum size in bytes of a state that is stored in a link. Sealing adds a third, and browsers,
	// servers and proxies accept URLs of 2,000 characters.
	maxInlineState = 1200
	// maxStoredState is the maximum size in bytes of a stored state.
	maxStoredState = 256 << 10
)

// First byte of a sealed text after any padding: it determines whether the state or the key of a stored state follows.
const (
	inlineMarker = 's'
	storedMarker = 'k'
	paddingByte  = "p"
)

// seal returns the sealed text for a state, or for its key if it is too long.
func (x Pages) seal(ctx context.Context, state []byte) (string, error) {
	if len(state) <= maxInlineState || x.States == nil {
		return x.sealPadded(ctx, string(inlineMarker)+string(state))
	}
	if len(state) > maxStoredState {
		return "", message.TooCostly("The search needs too much state for further pages: request fewer types or fewer matches per page.")
	}
	key := rand.Text()
	sealed, err := x.Sealing.Seal(ctx, string(state), x.bindingForKey(key))
	if err != nil {
		return "", err
	}
	if err := x.States.PutState(ctx, x.Binding, key, []byte(sealed), pageLifetime); err != nil {
		return "", stateUnavailable(err)
	}
	return x.sealPadded(ctx, string(storedMarker)+key)
}

// sealPadded seals the text of a link. If there are policies, it pads all links to the same length: the length of a state
// depends on how denied matches shift the boundaries of the FHIR server's pages.
func (x Pages) sealPadded(ctx context.Context, text string) (string, error) {
	if x.FullRequestLinks {
		text = strings.Repeat(paddingByte, max(maxInlineState+1-len(text), 0)) + text
	}
	return x.Sealing.Seal(ctx, text, x.Binding)
}

// unseal returns the state of a sealed link. Links of other tokens get 404.
func (x Pages) unseal(ctx context.Context, sealed string) (string, error) {
	text, err := x.Sealing.Unseal(ctx, sealed, x.Binding, pageLifetime)
	if text = strings.TrimLeft(text, paddingByte); err != nil || text == "" {
		return "", message.NotFound()
	}
	if text[0] == inlineMarker {
		return text[1:], nil
	}
	if x.States == nil || text[0] != storedMarker {
		return "", message.NotFound()
	}
	key := text[1:]
	state, err := x.States.GetState(ctx, key)
	switch {
	case errors.Is(err, ErrNoState):
		return "", &guard.Error{Status: http.StatusGone, Description: "The page link has expired: repeat the search.", Err: err}
	case err != nil:
		return "", stateUnavailable(err)
	}
	if text, err = x.Sealing.Unseal(ctx, string(state), x.bindingForKey(key), pageLifetime); err != nil {
		return "", message.NotFound()
	}
	return text, nil
}

// bindingForKey returns the binding of a stored state, which also binds it to its key.
func (x Pages) bindingForKey(key string) string { return "state\x00" + key + "\x00" + x.Binding }

// stateRetryAfter is the value of Retry-After if a state cannot be stored or read.
const stateRetryAfter = 10 * time.Second

func stateUnavailable(err error) error {
	return &guard.Error{
		Status: http.StatusServiceUnavailable, Description: "The page link cannot be stored or read right now: try again later.",
		Wait: stateRetryAfter, Err: fmt.Errorf("storing or reading page state: %w", err),
	}
}

// A state is encoded as fields in a fixed order. Numbers are unsigned varints; texts are preceded by their length. Resource
// types are numbered by first occurrence. Nothing is compressed: the length of a sealed link must not depend on the similarity
// of the client's parameters to the FHIR server's.

type stateWriter struct {
	out   []byte
	types map[string]uint64
}

func (w *stateWriter) writeNumber(n int) { w.out = binary.AppendUvarint(w.out, uint64(max(n, 0))) }

func (w *stateWriter) writeText(s string) {
	w.writeNumber(len(s))
	w.out = append(w.out, s...)
}

// writeResourceType writes the number of a type, followed by its name when the type first occurs.
func (w *stateWriter) writeResourceType(name string) {
	n, ok := w.types[name]
	if !ok {
		n = uint64(len(w.types))
		w.types[name] = n
	}
	if w.writeNumber(int(n)); !ok {
		w.writeText(name)
	}
}

// Encodings of ids; the encoding precedes the id. For text, it is textEncoding plus the length.
const (
	uuidEncoding   = iota // 16 bytes
	numberEncoding        // unsigned varint
	textEncoding
)

// maxNumber is the largest number in a state.
const maxNumber = 1 << 62

// writeID writes an id. Most ids are UUIDs or numbers.
func (w *stateWriter) writeID(id string) {
	if raw, ok := parseUUID(id); ok {
		w.out = append(append(w.out, uuidEncoding), raw[:]...)
		return
	}
	if n, err := strconv.Atoi(id); err == nil && n >= 0 && n <= maxNumber && strconv.Itoa(n) == id {
		w.writeNumber(numberEncoding)
		w.writeNumber(n)
		return
	}
	w.writeNumber(textEncoding + len(id))
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
	w.writeText(p.Method)
	w.writeText(p.Path)
	w.writeText(p.Query)
	w.writeText(p.Body)
	w.writeNumber(p.Position.ReturnedCount)
	w.writeNumber(p.Position.Total)
	w.writeNumber(len(p.Position.Branches))
	for _, at := range p.Position.Branches {
		w.writeNumber(boolBit(at.IsDone, 1) | boolBit(at.MayBeIncomplete, 2))
		w.writeText(at.Path)
		w.writeText(at.Query)
		w.writeNumber(at.ReturnedCount)
		w.writeNumber(len(at.Pending))
		for _, reference := range at.Pending {
			resourceType, id, _ := strings.Cut(reference, "/")
			w.writeResourceType(resourceType)
			w.writeID(id)
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

var errMalformedState = errors.New("malformed page state")

// stateReader decodes a state. After an error, its methods return zero values.
type stateReader struct {
	remaining string
	types     []string
	err       error
}

func (r *stateReader) readBytes(n int) string {
	if n < 0 || n > len(r.remaining) {
		r.err, r.remaining = errMalformedState, ""
		return ""
	}
	text := r.remaining[:n]
	r.remaining = r.remaining[n:]
	return text
}

func (r *stateReader) readNumber() int {
	n, size := binary.Uvarint([]byte(r.remaining[:min(len(r.remaining), binary.MaxVarintLen64)]))
	if size <= 0 || n > maxNumber {
		r.err, r.remaining = errMalformedState, ""
		return 0
	}
	r.remaining = r.remaining[size:]
	return int(n)
}

func (r *stateReader) readText() string { return r.readBytes(r.readNumber()) }

func (r *stateReader) readResourceType() string {
	n := r.readNumber()
	switch {
	case n == len(r.types):
		r.types = append(r.types, r.readText())
	case n > len(r.types):
		r.err = errMalformedState
		return ""
	}
	return r.types[n]
}

func (r *stateReader) readID() string {
	switch n := r.readNumber(); n {
	case uuidEncoding:
		raw := r.readBytes(16)
		if len(raw) < 16 {
			return ""
		}
		return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
	case numberEncoding:
		return strconv.Itoa(r.readNumber())
	default:
		return r.readBytes(n - textEncoding)
	}
}

// decodePage decodes the result of [Page.encode].
func decodePage(state string) (p Page, err error) {
	r := stateReader{remaining: state}
	p.Method, p.Path, p.Query, p.Body = r.readText(), r.readText(), r.readText(), r.readText()
	p.Position.ReturnedCount, p.Position.Total = r.readNumber(), r.readNumber()
	for branchCount := r.readNumber(); branchCount > 0 && r.err == nil; branchCount-- {
		flags := r.readNumber()
		at := BranchPosition{IsDone: flags&1 != 0, MayBeIncomplete: flags&2 != 0, Path: r.readText(), Query: r.readText(), ReturnedCount: r.readNumber()}
		for pendingCount := r.readNumber(); pendingCount > 0 && r.err == nil; pendingCount-- {
			at.Pending = append(at.Pending, r.readResourceType()+"/"+r.readID())
		}
		p.Position.Branches = append(p.Position.Branches, at)
	}
	if r.err == nil && r.remaining != "" {
		r.err = errMalformedState
	}
	return p, r.err
}
