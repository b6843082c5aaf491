package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Values of headers, shared by many answers and never changed: who appends makes a copy.
var (
	varies        = []string{"Accept, Accept-Encoding, Accept-Language"}
	variesByUser  = []string{"Accept, Accept-Encoding, Accept-Language, Authorization"}
	cookie        = []string{"Cookie"}
	publicNoCache = []string{"public, no-cache"}
	// Not public, even if all are given the same: a shared cache would give it past the guard.
	privateNoCache = []string{"private, no-cache"}
	privateNoStore = []string{"private, no-store"}
)

// stamp holds the headers of an entry that change each second.
type stamp struct {
	second  int64 // of the entry's age
	maxAge  time.Duration
	age     []string
	status  []string // Cache-Status of an answer that was not asked for
	public  []string // Cache-Control
	private []string
}

func (e *entry) stampAt(age, maxAge time.Duration) *stamp {
	second := int64(age / time.Second)
	if s := e.stamp.Load(); s != nil && s.second == second && s.maxAge == maxAge {
		return s
	}
	s := &stamp{second: second, maxAge: maxAge, public: publicNoCache, private: privateNoCache}
	s.age = []string{strconv.FormatInt(second, 10)}
	s.status = []string{cacheName + "; hit; ttl=" + strconv.FormatInt(e.ttl(age), 10)}
	if rest := min(maxAge, e.fresh-age); rest >= time.Second {
		lifetime := strconv.FormatInt(second+int64(rest/time.Second), 10) // it is counted with the age
		s.public, s.private = []string{"public, max-age=" + lifetime}, []string{"private, max-age=" + lifetime}
	}
	e.stamp.Store(s)
	return s
}

// ttl returns for how many seconds an entry is still fresh, negative if it is stale.
func (e *entry) ttl(age time.Duration) int64 {
	return int64(e.fresh/time.Second) - int64(age/time.Second)
}

// write answers with an entry. status is Cache-Status; nil is that of a hit.
func (c *Cache) write(w http.ResponseWriter, r *http.Request, call *Call, e *entry, now time.Time, status []string) error {
	s := e.stampAt(e.age(now), c.options.MaxAge)
	if status == nil {
		status = s.status
	}
	header := w.Header()
	header["Age"] = s.age
	header["Cache-Status"] = status
	if e.key.personal || isAuthorised(r, call) {
		header["Cache-Control"] = s.private
		setVary(header, variesByUser)
	} else {
		header["Cache-Control"] = s.public
		setVary(header, varies)
	}
	if len(r.Header["Cookie"]) > 0 && call.Principal == (Principal{}) {
		setVary(header, cookie) // it may be what tells users apart
	}
	if len(call.Scheme.Headers) > 0 {
		setVary(header, call.Scheme.Headers)
	}
	accepts := acceptedCodings(r.Header["Accept-Encoding"])
	if r.Method != http.MethodPost {
		if f := e.matched(r.Header, &accepts); f != nil {
			return e.writeNotModified(w, f)
		}
	}
	if e.uses.Load() < 2 {
		e.uses.Add(1)
	}
	f, grown := e.choose(&accepts)
	if grown > 0 {
		c.store.grow(e, int64(grown))
	}
	return e.writeForm(w, r, f)
}

// isAuthorised reports whether not everybody could have made the request.
func isAuthorised(r *http.Request, call *Call) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || call.Principal != (Principal{})
}

// setVary adds to the header Vary.
func setVary(header http.Header, values []string) {
	if before := header["Vary"]; len(before) > 0 {
		values = append(slices.Clip(before), values...)
	}
	header["Vary"] = values
}

// writeNotModified writes 304 (RFC 9110 §15.4.5).
func (e *entry) writeNotModified(w http.ResponseWriter, f *form) error {
	header := w.Header()
	header["Etag"] = f.etag
	if location := e.origin["Content-Location"]; location != nil {
		header["Content-Location"] = location
	}
	w.WriteHeader(http.StatusNotModified)
	return nil
}

// writeForm writes a form. It supports no ranges and does not say so, which RFC 9110 §14.2 and §14.3 allow: an eighth
// header makes the map grow.
func (e *entry) writeForm(w http.ResponseWriter, r *http.Request, f *form) error {
	header := w.Header()
	for i := range e.headers {
		header[e.headers[i].name] = e.headers[i].values
	}
	if r.Method != http.MethodPost && e.status == http.StatusOK {
		header["Etag"] = f.etag
	}
	if f.coding != identity {
		header["Content-Encoding"] = encodingNames[f.coding]
	}
	header["Content-Length"] = f.length
	return writeBody(w, r, e.status, f.body)
}

func writeBody(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	w.WriteHeader(status)
	if r.Method == http.MethodHead || len(body) == 0 {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// hopByHop are headers about a connection, or set by whoever writes the answer (RFC 9110 §7.6.1).
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Cache-Status"}

// relay writes an answer that is not stored, as it came. To an authorised request it is private, whatever its origin,
// which knows nothing of the guard, allows (RFC 9111 §3.5).
func relay(w http.ResponseWriter, r *http.Request, call *Call, a *Answer, status string) error {
	header := w.Header()
	for name, values := range a.Header {
		if name == "Vary" {
			setVary(header, values)
		} else if !slices.Contains(hopByHop, name) {
			header[name] = values
		}
	}
	if isAuthorised(r, call) {
		header["Cache-Control"] = privateNoCache
		if parseDirectives(a.Header["Cache-Control"]).has("no-store") {
			header["Cache-Control"] = privateNoStore
		}
	}
	header["Cache-Status"] = []string{status}
	if a.Status != http.StatusNotModified && a.Status != http.StatusNoContent {
		header["Content-Length"] = []string{strconv.Itoa(len(a.Body))}
	}
	return writeBody(w, r, a.Status, a.Body)
}
