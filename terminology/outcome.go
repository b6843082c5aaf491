package terminology

// appendOutcome appends an OperationOutcome as JSON.
func appendOutcome(dst []byte, issues []Issue) []byte {
	dst = append(dst, `{"resourceType":"OperationOutcome"`...)
	list := array{name: "issue"}
	for i := range issues {
		dst = issues[i].append(list.next(dst))
	}
	return append(list.end(dst), '}')
}

// append appends an issue as JSON.
func (i *Issue) append(dst []byte) []byte {
	start := len(dst)
	if i.MessageID != "" {
		dst = append(dst, `,"extension":[{"url":"`+MessageIDExtension+`","valueString":`...)
		dst = append(appendString(dst, i.MessageID), '}', ']')
	}
	dst = appendMember(dst, "severity", i.Severity)
	dst = appendMember(dst, "code", i.Code)
	dst = append(dst, `,"details":{`...)
	if i.TxCode != "" {
		dst = append(dst, `"coding":[{"system":"`+TxIssueType+`","code":`...)
		dst = append(appendString(dst, i.TxCode), `}],`...)
	}
	dst = append(dst, `"text":`...)
	dst = append(appendString(dst, i.Text), '}')
	dst = appendMember(dst, "diagnostics", i.Text)
	dst = append(appendStrings(dst, "expression", i.Expression), '}')
	dst[start] = '{' // in place of the comma
	return dst
}

// appendStrings appends a member that is an array of strings.
func appendStrings(dst []byte, name string, values []string) []byte {
	list := array{name: name}
	for _, value := range values {
		dst = appendString(list.next(dst), value)
	}
	return list.end(dst)
}
