package outcome

import "github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"

// AppendOutcome appends an OperationOutcome.
func AppendOutcome(dst []byte, issues []Issue) []byte {
	dst = append(dst, `{"resourceType":"OperationOutcome"`...)
	list := fhirjson.Array{Name: "issue"}
	for i := range issues {
		dst = issues[i].append(list.Next(dst))
	}
	return append(list.End(dst), '}')
}

func (i *Issue) append(dst []byte) []byte {
	start := len(dst)
	if i.MessageID != "" {
		dst = append(dst, `,"extension":[{"url":"`+messageIDExtension+`","valueString":`...)
		dst = append(fhirjson.AppendString(dst, i.MessageID), '}', ']')
	}
	dst = fhirjson.AppendMember(dst, "severity", i.Severity)
	dst = fhirjson.AppendMember(dst, "code", i.Code)
	dst = append(dst, `,"details":{`...)
	if i.TxCode != "" {
		dst = append(dst, `"coding":[{"system":"`+txIssueType+`","code":`...)
		dst = append(fhirjson.AppendString(dst, i.TxCode), `}],`...)
	}
	dst = append(dst, `"text":`...)
	dst = append(fhirjson.AppendString(dst, i.Text), '}')
	dst = fhirjson.AppendMember(dst, "diagnostics", i.diagnostics())
	dst = append(appendStrings(dst, "expression", i.Expression), '}')
	dst[start] = '{' // replaces the comma
	return dst
}

func (i *Issue) diagnostics() string {
	if i.Detail == "" {
		return i.Text
	}
	return i.Text + ": " + i.Detail
}

func appendStrings(dst []byte, name string, values []string) []byte {
	list := fhirjson.Array{Name: name}
	for _, value := range values {
		dst = fhirjson.AppendString(list.Next(dst), value)
	}
	return list.End(dst)
}
