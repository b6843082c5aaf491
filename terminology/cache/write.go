package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Header values, shared by many answers and never changed.
var (
	varies        = []string{"Accept, Accept-Encoding, Accept-Language"}
	variesByUser  = []string{"Accept, Accept-Encoding, Accept-Language, Authorization"}
	cookie        = []string{"Cookie"}
	publicNoCache = []string{"public, no-cache"}
	// Not public, even if all get the same answer: a shared cache would bypass the guard.
	privateNoCache = []string{"private, no-cache"}
	privateNoStore = []string{"private, no-store"}
)

func (e *entry) stampAt(age, maxAge time.Duration) *stamp {
	second := int64(age / time.Second)
	if s := e.stamp.Load(); s != nil && s.second == second && s.maxAge == maxAge {
		return s
	}
	s := &stamp{second: second, maxAge: maxAge, public: publicNoCache, private: privateNoCache}
	s.age = []string{strconv.FormatInt(second, 10)}
	s.status = []string{cacheName + "; hit; ttl=" + strconv.FormatInt(e.ttl(age), 10)}
	if rest := min(maxAge, e.fresh-age); rest >= time.Second {
		lifetime := strconv.FormatInt(second+int64(rest/time.Second), 10) // max-age includes the age
		s.public, s.private = []string{"public, max-age=" + lifetime}, []string{"private, max-age=" + lifetime}
	}
	e.stamp.Store(s)
	return s
}

// ttl returns for how many seconds an entry is still fresh; negative: it is stale.
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
	return e.writeForm(w, r, call, f)
}

// isAuthorised reports whether a request has credentials or a principal.
func isAuthorised(r *http.Request, call *Call) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || call.Principal != (Principal{})
}

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

// writeForm writes a form, without Accept-Ranges (RFC 9110 §14.3): an eighth header would make the map grow.
func (e *entry) writeForm(w http.ResponseWriter, r *http.Request, call *Call, f *form) error {
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
	return call.writeBody(w, r, e.status, f.body, e.own)
}

func (c *Call) writeBody(w http.ResponseWriter, r *http.Request, status int, body []byte, own bool) error {
	if own && c.BeginOwn != nil {
		c.BeginOwn(w, status)
	} else {
		w.WriteHeader(status)
	}
	if r.Method == http.MethodHead || len(body) == 0 {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// hopByHop are headers about a connection (RFC 9110 §7.6.1), or set by whoever writes the answer.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Cache-Status"}

// relay writes an answer that is not stored. To an authorised request it is private, whatever its origin says, which knows
// nothing of the guard (RFC 9111 §3.5).
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
	return call.writeBody(w, r, a.Status, a.Body, a.Own)
}
