package guardattack

import (
	"encoding/json"
	"net/http"
	"strings"
)

// bundle returns a batch or transaction of several attacks.
func (a *Attacker) bundle() Attack {
	all := Attack{Method: http.MethodPost}
	var entries []any
	search := searches{a}.search
	for range 1 + a.IntN(4) {
		one := pick(a, a.read, search, search, a.write, a.operation)()
		if one.Headers != nil && one.Headers[0] == "Content-Type" {
			one.Method, one.Path = http.MethodGet, strings.TrimSuffix(one.Path, "/_search")+"?"+one.Body
		}
		all.Victim = one.Victim // only the victim of the last attack is replaced in OnAbsent
		entries = append(entries, entryOf(one))
	}
	text, _ := json.Marshal(map[string]any{"resourceType": "Bundle", "type": pick(a, "batch", "batch", "transaction"), "entry": entries})
	all.Body = string(text)
	return all
}

// entryOf returns a request as the entry of a Bundle.
func entryOf(a Attack) any {
	request := map[string]any{"method": a.Method, "url": a.Path}
	for i := 0; i < len(a.Headers); i += 2 {
		switch a.Headers[i] {
		case "If-Match", "If-None-Exist", "If-None-Match":
			name := strings.ReplaceAll(a.Headers[i], "-", "")
			request["i"+name[1:]] = a.Headers[i+1]
		}
	}
	entry := map[string]any{"request": request}
	if a.Method != http.MethodGet && json.Valid([]byte(a.Body)) && strings.HasPrefix(a.Body, "{") {
		entry["resource"] = json.RawMessage(a.Body)
	}
	return entry
}
