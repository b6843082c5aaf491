package cache

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// coding is a content coding (RFC 9110 §8.4.1).
type coding uint8

// The codings. Of those that a client wants equally, the last is used.
const (
	identity coding = iota
	gzipped
	zstandard
	codings // their number
)

// names are the codings in headers. suffixes end the entity tags of coded forms, and differ from those of Caddy's encode,
// which strips its own.
var (
	names    = [codings]string{"", "gzip", "zstd"}
	suffixes = [codings]string{"", "-gz", "-zs"}
)

// minCompressed is the size from which bodies are compressed: smaller ones fit into one packet.
const minCompressed = 1024

// weights are how much a client wants each coding, in thousandths; 0: not at all.
type weights [codings]int

// unnamed is the weight of identity if it is not named: acceptable, but last.
const unnamed = 1

// acceptedCodings reads Accept-Encoding (RFC 9110 §12.5.3). Without it, nothing is coded.
func acceptedCodings(values []string) (w weights) {
	w = weights{identity: unnamed}
	var named [codings]bool
	others, wildcard := 0, false
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(item, ";")
			name, q := strings.Trim(name, " \t"), negotiation.Weight(parameters)
			if name == "*" {
				others, wildcard = q, true
				continue
			}
			if c, ok := codingOf(name); ok {
				w[c], named[c] = q, true
			}
		}
	}
	for c := range codings {
		if wildcard && !named[c] && (c != identity || others == 0) {
			w[c] = others
		}
	}
	return w
}

// codingOf returns the coding with a name; x-gzip is gzip (RFC 9110 §8.4.1.3).
func codingOf(name string) (coding, bool) {
	switch {
	case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
		return gzipped, true
	case strings.EqualFold(name, "zstd"):
		return zstandard, true
	case strings.EqualFold(name, "identity"):
		return identity, true
	}
	return identity, false
}

// best returns the available coding that the client wants most.
func (w *weights) best(toBeHad func(coding) bool) coding {
	best := identity
	for c := identity + 1; c < codings; c++ {
		if w[c] > 0 && w[c] >= w[best] && toBeHad(c) {
			best = c
		}
	}
	return best
}

// form is a body in one coding.
type form struct {
	coding coding
	body   []byte
	tag    string // entity tag, without quotes
	etag   []string
	length []string
}

// encoding is a form that is made when it is first needed.
type encoding struct {
	atomic.Pointer[form]
	compressing atomic.Bool
}

const formOverhead = 250

// newForm makes a form of a coded body; tag is that of the plain body.
func newForm(c coding, body []byte, tag string) *form {
	tag += suffixes[c]
	return &form{coding: c, body: body, tag: tag, etag: []string{`"` + tag + `"`}, length: []string{strconv.Itoa(len(body))}}
}

func (f *form) cost() int { return formOverhead + len(f.body) }

var encodingNames = [codings][]string{gzipped: {names[gzipped]}, zstandard: {names[zstandard]}}

func encode(c coding, body []byte) []byte {
	if c == zstandard {
		return zstdEncoder().EncodeAll(body, make([]byte, 0, len(body)/4))
	}
	var b bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&b)
	_, _ = w.Write(body) // a Buffer takes everything
	_ = w.Close()
	return bytes.Clone(b.Bytes())
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// zstdEncoder has windows that every client can decode (RFC 9659 §3).
var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("cache: zstd options: " + err.Error()) // they are constant
	}
	return e
})
