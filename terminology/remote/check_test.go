package remote

import "testing"

func TestOutlineJSON(t *testing.T) {
	t.Parallel()
	valueSet := content{resource: "ValueSet", url: "http://x/vs", expanded: true}
	tests := []struct {
		name, body string
		want       content
	}{
		{"expansion", `{"resourceType":"ValueSet","url":"http://x/vs","expansion":{"contains":[{"url":1}]}}`, valueSet},
		{"escaped", `{"resourceT\u0079pe":"ValueSet","url":"http:\/\/x\/vs","expansion":{}}`, valueSet},
		{"url null", `{"resourceType":"ValueSet","url":null,"expansion":{}}`, content{"ValueSet", "", true}},
		{"url a number", `{"resourceType":"ValueSet","url":5,"expansion":{}}`, content{"ValueSet", "", true}},
		{"url an object", `{"resourceType":"ValueSet","url":{"a":[1]},"expansion":{}}`, content{"ValueSet", "", true}},
		{"url twice", `{"url":"http://x/vs","resourceType":"ValueSet","url":7,"expansion":{}}`, valueSet},
		{"resourceType a number", `{"resourceType":5,"expansion":{}}`, content{"", "", true}},
		{"expansion null", `{"resourceType":"ValueSet","expansion":null}`, content{"ValueSet", "", false}},
		{"expansion a list", `{"resourceType":"ValueSet","expansion":[{}]}`, content{"ValueSet", "", false}},
		{"other letters", `{"resourcetype":"ValueSet","URL":"http://x/vs","Expansion":{}}`, content{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got, err := outlineJSON([]byte(test.body)); err != nil || got != test.want {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestOutlineNoJSON(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing": "", "a list": `[]`, "a string": `"x"`, "cut short": `{"resourceType":"ValueSet","expansion":{"a":[1}`,
		"more after it": `{"resourceType":"ValueSet"} {}`, "bad UTF-8": "{\"url\":\"\xff\"}", "bad UTF-8 within": "{\"expansion\":{\"a\":\"\xff\"}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := outlineJSON([]byte(body)); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}
