package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"time"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
	"github.com/fanjet/fanjet/engine/api"
)

// enrolTTL is how long a second factor may wait to be confirmed.
const enrolTTL = 10 * time.Minute

func (a *API) factorRoutes() {
	const path = "/me/second-factor"
	route(a, op{
		id: "begin-second-factor", method: http.MethodPost, path: path, title: "Begin to set up a second factor (TOTP)",
		about: "Nothing is stored before it is confirmed.", perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, in *struct{ Body api.Proof }) (*bodyOf[api.Enrolment], error) {
		u, err := a.factorOwner(ctx)
		if err != nil {
			return nil, err
		}
		if u, err = a.prove(ctx, u, proof{password: in.Body.Password, code: in.Body.Code, noPassword: true}); err != nil {
			return nil, a.unproved(ctx, doFactor, err)
		}
		if len(u.TOTP) > 0 {
			return nil, fmt.Errorf("there is a second factor already: remove it first: %w", engine.ErrConflict)
		}
		var key [access.TOTPSize]byte
		_, _ = rand.Read(key[:]) // never fails, since Go 1.24
		// The key waits with the caller, sealed, with the time until which it may be confirmed.
		state, err := a.seal(pendingLabel(u), binary.BigEndian.AppendUint64(key[:], uint64(a.now()+enrolTTL.Milliseconds())))
		if err != nil {
			return nil, err
		}
		return body(api.Enrolment{URI: access.TOTPURI(key, "Fanjet", u.Name), State: base64.RawURLEncoding.EncodeToString(state)}), nil
	})
	route(a, op{
		id: "confirm-second-factor", method: http.MethodPut, path: path, title: "Confirm the second factor by its first code",
		about: "All sessions end; the caller gets a new one.", perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, in *struct{ Body api.ConfirmEnrolment }) (*withCookie[api.Me], error) {
		u, err := a.factorOwner(ctx)
		if err != nil {
			return nil, err
		}
		old := fmt.Errorf("this enrolment is not yours, or over: begin again: %w", engine.ErrInvalid)
		state, err := base64.RawURLEncoding.DecodeString(in.Body.State)
		if err != nil {
			return nil, old
		}
		now := a.now()
		plain, err := a.cfg.Keys.Open(pendingLabel(u), state)
		if err != nil || len(plain) != access.TOTPSize+8 || now > int64(binary.BigEndian.Uint64(plain[access.TOTPSize:])) {
			return nil, old
		}
		key := plain[:access.TOTPSize]
		step, err := access.VerifyTOTP(key, in.Body.Code, now, u.TOTPStep)
		if err != nil {
			return nil, &plainError{"the code is wrong: is the clock of the phone right?", engine.ErrInvalid}
		}
		sealed, err := a.seal(access.TOTPLabel(u.ID), key)
		if err != nil {
			return nil, err
		}
		if err := a.cfg.Store.SetTOTP(ctx, u.ID, sealed, step, now, a.recorded(ctx, doFactor, userTarget(u.Name), nil, nil)); err != nil {
			return nil, err
		}
		if u, err = a.self(ctx); err != nil {
			return nil, err
		}
		return a.enter(ctx, u, doLogin)
	})
	route(a, op{
		id: "remove-second-factor", method: http.MethodPost, path: path + "/remove", title: "Remove the second factor", about: "All sessions end.",
		perm: access.SelfManage, tag: "identity",
	}, func(ctx context.Context, in *struct{ Body api.Proof }) (*nothing, error) {
		u, err := a.factorOwner(ctx)
		if err != nil {
			return nil, err
		}
		if u, err = a.prove(ctx, u, proof{password: in.Body.Password, code: in.Body.Code, noPassword: true}); err != nil {
			return nil, a.unproved(ctx, doNoFactor, err)
		}
		return nil, a.cfg.Store.SetTOTP(ctx, u.ID, nil, u.TOTPStep, a.now(), a.recorded(ctx, doNoFactor, userTarget(u.Name), nil, nil))
	})
}

// factorOwner is the caller, who may have a second factor here.
func (a *API) factorOwner(ctx context.Context) (*engine.User, error) {
	u, err := a.person(ctx)
	if err == nil && a.cfg.Keys == nil {
		err = fmt.Errorf("the server has no keys to seal second factors with: whoever runs it must give it some: %w", engine.ErrConflict)
	}
	return u, err
}

// pendingLabel binds an enrolment to the user and to what it logged in with then: the
// generation grows when a second factor is set, so that none is confirmed twice.
func pendingLabel(u *engine.User) access.Label {
	return access.SecretLabel(u.ID, fmt.Sprintf("second-factor\x00%d", u.Generation))
}

func (a *API) seal(l access.Label, value []byte) ([]byte, error) {
	var r [access.SealRandom]byte
	_, _ = rand.Read(r[:]) // never fails, since Go 1.24
	return a.cfg.Keys.Seal(l, value, r)
}
