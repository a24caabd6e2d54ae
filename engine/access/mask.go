package access

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Mask stands where a secret was.
const Mask = "***"

// minMasked is how long a value must be to be looked for inside other text: shorter ones are
// in every text by chance, and would be told by the gaps.
const minMasked = 4

// secretKeys are the parts of keys whose value is a secret, whatever it is.
var secretKeys = []string{
	"password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey", "credential", "authorization", "cookie", "dsn", "totp", "otp",
}

// userinfo is the password in a URL.
var userinfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#@:"']*:)[^\s/?#"']*@`)

// dsn is a data source as the MySQL driver takes it.
var dsn = regexp.MustCompile(`(\b[\w.-]+:)\S+@(tcp|unix)\(`)

// bearer is what an Authorization header holds, and a credential of ours wherever it stands.
var bearer = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}|\bfj[a-z]*_[0-9]+_[a-z2-7]{52}\b`)

// Masker hides secrets in what is written to the audit log, logs and answers. The zero value
// knows no values, and masks by the names of keys and the looks of texts alone. It is safe
// for concurrent use.
type Masker struct {
	whole    map[string]bool
	replacer *strings.Replacer
}

// NewMasker knows the values of secrets besides. Each is masked wherever it stands, as it is
// and as URLs, JSON and base64 spell it, a value of several lines line by line too; one
// shorter than 4 bytes only where it is all of the text, and an empty one not at all.
func NewMasker(values ...string) *Masker {
	m := &Masker{whole: map[string]bool{}}
	var long []string
	add := func(s string) {
		if len(s) >= minMasked {
			long = append(long, s)
		}
	}
	for _, v := range values {
		if v == "" {
			continue
		}
		m.whole[v] = true
		spellings := append([]string{v}, strings.FieldsFunc(v, func(c rune) bool { return c == '\n' || c == '\r' })...)
		for _, s := range spellings {
			if len(s) < minMasked {
				continue
			}
			add(s)
			escaped := percent(s, "")
			add(escaped)
			add(strings.ReplaceAll(escaped, "%20", "+"))
			add(percent(s, "$&+=:@")) // as in a path
			add(base64.StdEncoding.EncodeToString([]byte(s)))
			add(base64.URLEncoding.EncodeToString([]byte(s)))
			if b, err := json.Marshal(s); err == nil {
				add(string(b[1 : len(b)-1]))
			}
		}
	}
	slices.SortFunc(long, func(a, b string) int { return len(b) - len(a) }) // the longest first, as one may hold another
	var pairs []string
	for _, s := range slices.Compact(long) {
		pairs = append(pairs, s, Mask)
	}
	if len(pairs) > 0 {
		m.replacer = strings.NewReplacer(pairs...)
	}
	return m
}

// percent escapes all but what is unreserved in a URL (RFC 3986, 2.3) or to be kept.
func percent(s, keep string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~"+keep, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}

// Text masks what is secret in a text.
func (m *Masker) Text(s string) string {
	if m.whole[s] {
		return Mask
	}
	if m.replacer != nil {
		s = m.replacer.Replace(s)
	}
	s = userinfo.ReplaceAllString(s, "${1}"+Mask+"@")
	s = dsn.ReplaceAllString(s, "${1}"+Mask+"@${2}(")
	return bearer.ReplaceAllString(s, Mask)
}

// JSON masks a JSON value: every text in it, keys too, and whatever stands under a key that
// names a secret. What is not JSON becomes a masked JSON string.
func (m *Masker) JSON(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		v = string(b)
	}
	out, err := json.Marshal(m.value(v))
	if err != nil { // it came from JSON
		return []byte(`"` + Mask + `"`)
	}
	return out
}

func (m *Masker) value(v any) any {
	switch v := v.(type) {
	case string:
		return m.Text(v)
	case json.Number:
		if m.whole[v.String()] {
			return Mask
		}
		return v
	case []any:
		for i := range v {
			v[i] = m.value(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, inner := range v {
			if namesSecret(k) && !empty(inner) {
				out[m.Text(k)] = Mask
				continue
			}
			out[m.Text(k)] = m.value(inner)
		}
		return out
	}
	return v
}

// empty tells whether there is nothing to hide: that it is so may be seen.
func empty(v any) bool {
	switch v := v.(type) {
	case nil, bool:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func namesSecret(key string) bool {
	key = strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(key))
	return slices.ContainsFunc(secretKeys, func(part string) bool { return strings.Contains(key, part) })
}
