package fhirtest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

func (s *Server) read(w http.ResponseWriter, i interaction.Interaction) {
	versions := s.versions[i.Type+"/"+i.ID]
	n := len(versions)
	if i.VersionID != "" {
		n, _ = strconv.Atoi(i.VersionID)
	}
	switch {
	case n < 1 || n > len(versions):
		outcome(w, http.StatusNotFound, i.Type+"/"+i.ID+" is not known")
	case versions[n-1] == nil:
		outcome(w, http.StatusGone, i.Type+"/"+i.ID+" was deleted")
	default:
		w.Header().Set("Etag", fmt.Sprintf(`W/"%d"`, n))
		w.Header().Set("Content-Location", fmt.Sprintf("%s/%s/%s/_history/%d", Address, i.Type, i.ID, n))
		answer(w, http.StatusOK, versions[n-1])
	}
}

func (s *Server) history(w http.ResponseWriter, i interaction.Interaction) {
	key := i.Type + "/" + i.ID
	p := page{of: i, kind: "history", count: 20, total: len(s.versions[key])}
	if n, err := strconv.Atoi(value(i.Parameters, "_count")); err == nil && n > 0 {
		p.count = n
	}
	for n := len(s.versions[key]); n > 0; n-- {
		f := found{text: s.versions[key][n-1]}
		f.res.Type, f.res.ID = i.Type, i.ID
		f.more = `"request":{"method":"PUT","url":"` + Address + "/" + key + `"},"response":{"status":"200","location":"` + Address + "/" + key + `/_history/` + strconv.Itoa(n) + `","etag":"W/\"` + strconv.Itoa(n) + `\""}`
		if f.text == nil {
			f.more = strings.Replace(f.more, "PUT", "DELETE", 1)
		}
		p.entries = append(p.entries, f)
	}
	if p.total == 0 {
		outcome(w, http.StatusNotFound, key+" is not known")
		return
	}
	s.writePage(w, p, Address+"/"+key+"/_history")
}
