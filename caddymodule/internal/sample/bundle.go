package sample

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// How many matches a page has: unless the client says otherwise, and at most.
const (
	defaultCount = 50
	maxCount     = 1000
)

// bundle is what a search or a history found, of which one page is answered.
type bundle struct {
	Type    string
	path    string // below the base
	entries []entry
	more    func(page []entry) ([]entry, error) // what a page has beside its entries; nil: nothing
}

// entry is a resource that was found. Mode is match or include.
type entry struct {
	*version
	mode string
}

// linkJSON, entryJSON and bundleJSON are what goes over the wire.
type linkJSON struct {
	Relation string `json:"relation"`
	URL      string `json:"url"`
}

type entryJSON struct {
	FullURL  string            `json:"fullUrl,omitempty"`
	Resource json.RawMessage   `json:"resource,omitempty"`
	Search   map[string]string `json:"search,omitempty"`
	Request  map[string]string `json:"request,omitempty"`
	Response map[string]string `json:"response,omitempty"`
}

type bundleJSON struct {
	ResourceType string      `json:"resourceType"`
	Type         string      `json:"type"`
	Total        *int        `json:"total,omitempty"`
	Link         []linkJSON  `json:"link,omitempty"`
	Entry        []entryJSON `json:"entry,omitempty"`
}

// page answers with the page that _count and _offset name. The links repeat the parameters.
func (b bundle) page(q request, parameters []smart.Parameter) (reply, error) {
	count, err := number(q.Parameters, "_count", defaultCount)
	if err != nil {
		return reply{}, err
	}
	offset, err := number(q.Parameters, "_offset", 0)
	if err != nil {
		return reply{}, err
	}
	if value(q.Parameters, "_summary") == "count" {
		count = 0
	}
	total := len(b.entries)
	start := min(offset, total)
	end := min(start+min(count, maxCount), total)
	page := b.entries[start:end]
	out := bundleJSON{ResourceType: "Bundle", Type: b.Type, Total: &total, Link: []linkJSON{b.link(q, "self", parameters, offset)}}
	if count > 0 && end < total {
		out.Link = append(out.Link, b.link(q, "next", parameters, end))
	}
	if count > 0 && start > 0 {
		out.Link = append(out.Link, b.link(q, "previous", parameters, max(start-count, 0)))
	}
	if b.more != nil {
		included, err := b.more(page)
		if err != nil {
			return reply{}, err
		}
		page = append(slices.Clip(page), included...)
	}
	for _, e := range page {
		out.Entry = append(out.Entry, e.json(q))
	}
	return out.reply()
}

// reply is the answer with a Bundle.
func (b bundleJSON) reply() (reply, error) {
	text, err := json.Marshal(b)
	return answerWith(http.StatusOK, text), err
}

// link is a link to a page.
func (b bundle) link(q request, relation string, parameters []smart.Parameter, offset int) linkJSON {
	var query []string
	for _, p := range parameters {
		if p.Name != "_offset" {
			query = append(query, p.Name+"="+url.QueryEscape(p.Value))
		}
	}
	if offset > 0 {
		query = append(query, "_offset="+strconv.Itoa(offset))
	}
	to := strings.TrimSuffix(q.base+"/"+b.path, "/")
	if len(query) > 0 {
		to += "?" + strings.Join(query, "&")
	}
	return linkJSON{relation, to}
}

// json is an entry of a searchset, or of a history, which has no mode.
func (e entry) json(q request) entryJSON {
	out := entryJSON{FullURL: q.base + "/" + e.of.String(), Resource: e.text}
	if e.mode != "" {
		out.Search = map[string]string{"mode": e.mode}
		return out
	}
	to, status := e.of.String(), http.StatusOK
	if e.method == http.MethodPost {
		to = e.of.Type
	}
	switch {
	case e.text == nil:
		status = http.StatusNoContent
	case e.number == 1:
		status = http.StatusCreated
	}
	out.Request = map[string]string{"method": e.method, "url": to}
	out.Response = map[string]string{
		"status": strconv.Itoa(status), "etag": e.etag(), "lastModified": e.updated.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	return out
}

// number is the value of a parameter that is a number.
func number(parameters []smart.Parameter, name string, otherwise int) (int, error) {
	text := value(parameters, name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, invalid(name + " is a number from 0.")
	}
	return int(n), nil
}
