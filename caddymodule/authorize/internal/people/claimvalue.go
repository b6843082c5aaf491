package people

// Strings reads a claim that is a string or a list of strings.
func Strings(claim any) []string {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, w := range v {
			if text, ok := w.(string); ok {
				list = append(list, text)
			}
		}
		return list
	}
	return nil
}
