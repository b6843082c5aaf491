package sample

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A resource can be created, changed, deleted and restored. All versions remain available.
func TestVersions(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	w := send(s, http.MethodPost, "Patient", `{"resourceType":"Patient","id":"mine","meta":{"tag":[{"code":"x"}]},"active":true}`)
	location := strings.TrimPrefix(w.Header().Get("Location"), base+"/")
	id, version, _ := strings.Cut(location, "/_history/")
	if w.Code != http.StatusCreated || version != "1" || id == "Patient/mine" || !strings.Contains(w.Body.String(), `"tag":[{"code":"x"}]`) {
		t.Fatalf("%d %v: %s", w.Code, w.Header(), w.Body)
	}
	changed := `{"resourceType":"Patient","id":"` + strings.TrimPrefix(id, "Patient/") + `","active":false}`
	for _, step := range []struct {
		name, method, target, body string
		headers                    []string
		status                     int
		etag                       string
	}{
		{"read", "GET", id, "", nil, 200, `W/"1"`},
		{"not changed", "GET", id, "", []string{"If-None-Match", `W/"1"`}, 304, `W/"1"`},
		{"update", "PUT", id, changed, []string{"If-Match", `W/"1"`}, 200, `W/"2"`},
		{"update without an answer", "PUT", id, changed, []string{"Prefer", "return=minimal"}, 200, `W/"3"`},
		{"vread", "GET", id + "/_history/1", "", nil, 200, `W/"1"`},
		{"delete", "DELETE", id, "", nil, 204, ""},
		{"delete again", "DELETE", id, "", nil, 204, ""},
		{"read a deleted resource", "GET", id, "", nil, 410, ""},
		{"vread an earlier version", "GET", id + "/_history/3", "", nil, 200, `W/"3"`},
		{"bring it back", "PUT", id, changed, nil, 201, `W/"5"`},
		{"update a missing resource", "PUT", "Patient/new", `{"resourceType":"Patient","id":"new"}`, nil, 201, `W/"1"`},
	} {
		w := send(s, step.method, step.target, step.body, step.headers...)
		if w.Code != step.status || w.Header().Get("Etag") != step.etag {
			t.Errorf("%s: %d %s, want %d %s: %s", step.name, w.Code, w.Header().Get("Etag"), step.status, step.etag, w.Body)
		}
		if minimal := strings.Contains(strings.Join(step.headers, ""), "minimal"); step.status < 300 && step.method != "DELETE" && (w.Body.Len() == 0) != minimal {
			t.Errorf("%s: body %s", step.name, w.Body)
		}
	}
	var history struct {
		Total int
		Entry []struct{ Request struct{ Method string } }
	}
	w = send(s, http.MethodGet, id+"/_history", "")
	if err := json.Unmarshal(w.Body.Bytes(), &history); err != nil || history.Total != 5 || history.Entry[1].Request.Method != "DELETE" || history.Entry[4].Request.Method != "POST" {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// The criteria of a conditional request select the resource.
func TestConditional(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method, target, body, ifNoneExist string
		status                                  int
		location                                string
	}{
		{"create what exists", "POST", "Patient", `{"resourceType":"Patient"}`, "gender=male", 200, "Patient/2/_history/1"},
		{"create what does not", "POST", "Patient", `{"resourceType":"Patient"}`, "gender=other", 201, "Patient/"},
		{"update", "PUT", "Patient?gender=male", `{"resourceType":"Patient"}`, "", 200, "Patient/2/_history/2"},
		{"update another", "PUT", "Patient?gender=male", `{"resourceType":"Patient","id":"1"}`, "", 400, ""},
		{"update a missing resource", "PUT", "Patient?gender=other", `{"resourceType":"Patient"}`, "", 201, "Patient/"},
		{"delete", "DELETE", "Patient?gender=male", "", "", 204, ""},
		{"delete a missing resource", "DELETE", "Patient?gender=other", "", "", 204, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t)
			var headers []string
			if tt.ifNoneExist != "" {
				headers = []string{"If-None-Exist", tt.ifNoneExist}
			}
			w := send(s, tt.method, tt.target, tt.body, headers...)
			if location := w.Header().Get("Location"); w.Code != tt.status || tt.location != "" && !strings.HasPrefix(location, base+"/"+tt.location) {
				t.Errorf("%d %s: %s", w.Code, location, w.Body)
			}
			if _, there := s.Store.current(newTestServer(t).Store.order["Patient"][1]); there == (tt.name == "delete") {
				t.Errorf("Patient/2 is there: %v", there)
			}
		})
	}
}

// An absolute reference below the server's base URL is equivalent to a relative reference, both in resources and in searches.
func TestAbsoluteReference(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	send(s, http.MethodPut, "Observation/3", `{"resourceType":"Observation","id":"3","subject":{"reference":"`+base+`/Patient/1"}}`)
	for _, target := range []string{"Observation?patient=1", "Patient/1/Observation", "Observation?subject=" + base + "/Patient/1"} {
		if got := bundleResources(t, send(s, http.MethodGet, target, "")); !slices.Equal(got, []string{"Observation/1", "Observation/3"}) {
			t.Errorf("%s: %q", target, got)
		}
	}
}

const bundleOfTwo = `{"resourceType":"Bundle","type":"TYPE","entry":[
	{"resource":{"resourceType":"Observation","subject":{"reference":"urn:uuid:7"}},"request":{"method":"POST","url":"Observation"}},
	{"fullUrl":"urn:uuid:7","resource":{"resourceType":"Patient"},"request":{"method":"POST","url":"Patient"}},
	{"request":{"method":"DELETE","url":"Patient/3"}},
	{"request":{"method":"GET","url":"LAST"}}]}`

// A transaction succeeds or fails as a whole. The entries of a batch succeed or fail individually.
func TestTransaction(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, kind, last string
		status, count    int
		lastStatus       string
	}{
		{"transaction", "transaction", "Patient/1", 200, 8, "200"},
		{"transaction that fails", "transaction", "Patient/9", 404, 7, ""},
		{"batch", "batch", "Patient?name=ash", 200, 8, "200"},
		{"batch of which one fails", "batch", "Patient/9", 200, 8, "404"},
		{"unsupported interaction", "batch", "_history", 200, 8, "501"},
		{"history", "history", "Patient/1", 400, 7, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t)
			w := send(s, http.MethodPost, "", strings.NewReplacer("TYPE", tt.kind, "LAST", tt.last).Replace(bundleOfTwo))
			if w.Code != tt.status || s.Store.Len() != tt.count {
				t.Fatalf("%d, %d resources: %s", w.Code, s.Store.Len(), w.Body)
			}
			if tt.status != http.StatusOK {
				return
			}
			var b struct {
				Entry []struct {
					Response struct{ Status, Location string }
					Resource struct {
						Subject struct{ Reference string }
					}
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || len(b.Entry) != 4 || b.Entry[3].Response.Status != tt.lastStatus {
				t.Fatalf("%v: %s", err, w.Body)
			}
			patient, _, _ := strings.Cut(strings.TrimPrefix(b.Entry[1].Response.Location, base+"/"), "/_history")
			if got := b.Entry[0].Resource.Subject.Reference; tt.kind == "transaction" && got != patient {
				t.Errorf("the Observation is of %s, and the Patient is %s", got, patient)
			}
		})
	}
}

// After undo, the store is the same as before the changes.
func TestUndo(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	bytes := s.Store.totalBytes
	send(s, http.MethodPost, "", strings.NewReplacer("TYPE", "transaction", "LAST", "Patient/9").Replace(bundleOfTwo))
	if s.Store.totalBytes != bytes || len(s.Store.undoLog) != 7 || len(s.Store.order["Observation"]) != 2 || len(s.Store.versions) != 7 {
		t.Errorf("%d bytes, %d versions", s.Store.totalBytes-bytes, len(s.Store.undoLog))
	}
}

// A full store rejects changes but still serves reads.
func TestFull(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for range MaxVersions - 7 {
		if err := s.Store.remove(s.Store.order["Patient"][0]); err != nil {
			t.Fatal(err)
		}
	}
	if w := send(s, http.MethodPost, "Patient", `{"resourceType":"Patient"}`); w.Code != http.StatusInsufficientStorage {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if err := s.Store.remove(s.Store.order["Patient"][0]); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	if w := send(s, http.MethodGet, "Patient/2", ""); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
}
