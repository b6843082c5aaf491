package remote

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// Cut returns the answer to a request with no more entries than it asked for: some servers ignore count, and offset too.
// What cannot be cut is returned as it is.
func (a *Answer) Cut(q Question) *Answer {
	if !q.paged || q.page.Count == nil || a.Resource != "ValueSet" || len(a.Body) == 0 {
		return a
	}
	body, isXML := a.Body, bytes.HasPrefix(bytes.TrimSpace(a.Body), []byte{'<'})
	var err error
	if isXML {
		body, err = negotiation.AppendJSON(nil, body)
	}
	if err == nil {
		body, err = cutExpansion(body, q.page)
	}
	if err == nil && isXML && body != nil {
		body, err = negotiation.AppendXML(nil, body)
	}
	if err != nil || body == nil {
		return a
	}
	part := *a
	part.Body = body
	return &part
}

// cutExpansion returns a ValueSet with a page of its entries; nil if it has no more than that.
func cutExpansion(body []byte, page expansion.Page) ([]byte, error) {
	resource, err := members(body)
	at := slices.IndexFunc(resource, func(m fhirjson.Member) bool { return m.Name == "expansion" })
	if err != nil || at < 0 {
		return nil, err
	}
	expansion, err := members(resource[at].Value)
	if err != nil {
		return nil, err
	}
	entries, err := elements(valueOf(expansion, "contains"))
	if err != nil || len(entries) <= *page.Count {
		return nil, err
	}
	offset, all := 0, len(entries)
	if page.Offset != nil {
		offset = *page.Offset
	}
	from, total := min(offset, all), all
	if told := string(valueOf(expansion, "offset")); told == strconv.Itoa(offset) || beyond(expansion, all) {
		from, total = 0, offset+all // it ignores count alone
	}
	known := cmp.Or(string(valueOf(expansion, "total")), strconv.Itoa(total))
	expansion = slices.DeleteFunc(expansion, func(m fhirjson.Member) bool { return m.Name == "contains" || m.Name == "total" || m.Name == "offset" })
	add := func(name, value string) {
		expansion = append(expansion, fhirjson.Member{Name: name, Value: jsontext.Value(value)})
	}
	add("total", known)
	add("offset", strconv.Itoa(offset))
	if rest := entries[from:min(from+*page.Count, all)]; len(rest) > 0 {
		add("contains", "["+string(bytes.Join(rest, []byte{','}))+"]")
	}
	resource[at].Value = object(expansion)
	return object(resource), nil
}

// beyond reports whether an expansion says that it has more than n entries in all.
func beyond(expansion []fhirjson.Member, n int) bool {
	total, err := strconv.Atoi(string(valueOf(expansion, "total")))
	return err == nil && total > n
}

func members(raw []byte) (list []fhirjson.Member, err error) {
	r := fhirjson.ReaderOf(raw)
	err = r.Object(func(name []byte) error {
		_, err := r.Keep(string(name), &list)
		return err
	})
	return list, err
}

// elements returns the elements of an array; none if there is none.
func elements(raw jsontext.Value) (list [][]byte, err error) {
	if raw.Kind() != '[' {
		return nil, nil
	}
	r := fhirjson.ReaderOf(raw)
	err = r.Array(func() error {
		value, err := r.Value(0)
		list = append(list, value.Clone())
		return err
	})
	return list, err
}

func valueOf(list []fhirjson.Member, name string) jsontext.Value {
	at := slices.IndexFunc(list, func(m fhirjson.Member) bool { return m.Name == name })
	if at < 0 {
		return nil
	}
	return list[at].Value
}

func object(list []fhirjson.Member) []byte {
	dst := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.Append(dst)
	}
	return append(dst, '}')
}
